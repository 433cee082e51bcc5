"""What could go wrong with what is declared, planned or there: each with a code, its numbers, why, and what to do."""
