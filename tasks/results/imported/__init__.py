"""Outcomes of models without embeddings, made by other programs: judgements, ranks, hit lists, scores and runs."""
