"""How the flows are registered, served and scaled out."""
