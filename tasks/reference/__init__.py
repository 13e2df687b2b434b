"""The reference gate: results compared with published figures and with earlier runs."""
