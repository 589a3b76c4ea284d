"""Side-by-side timings; ``python -m benchmarks`` runs them."""
