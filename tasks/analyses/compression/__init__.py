"""What compressed vectors and approximate search cost, against exact search with the vectors as stored."""
