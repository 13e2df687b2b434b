"""How the flows are registered, served and scaled out. Telemetry of Prefect is off unless it is turned on."""

import os

os.environ.setdefault("DO_NOT_TRACK", "1")  # read when Prefect is imported
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
