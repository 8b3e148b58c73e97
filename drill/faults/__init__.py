"""The incident's three faults, injected from outside the product's code; the same for both designs."""
