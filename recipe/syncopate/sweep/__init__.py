"""What is to be trained, not how: rows, trials, seeds, budgets, and the checks that they fit together."""
