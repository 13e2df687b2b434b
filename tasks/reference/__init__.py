"""The reference gate: results compared with published results and with earlier runs."""
