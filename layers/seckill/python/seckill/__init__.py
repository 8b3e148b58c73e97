"""What the functions share: the reservation protocol and the three stores it is about (docs/protocol.md)."""
