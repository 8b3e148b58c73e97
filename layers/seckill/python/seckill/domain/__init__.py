"""The protocol's words as plain values: standard library only, no I/O."""
