"""Exact calculus of Born densities: marginals, conditionals, probabilities, moments, draws."""
