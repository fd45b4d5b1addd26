"""What a request may cost, costs, and who pays: prices, budgets, windows. Pure."""
