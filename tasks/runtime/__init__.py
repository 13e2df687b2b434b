"""What all Prefect tasks share: how a task is declared, retried, referred to and shown."""
