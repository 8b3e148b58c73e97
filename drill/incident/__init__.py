"""THE DESIGN THAT FAILED. Not this product: the incident's own design, kept so that every drill can show what it loses.

Deduct in Redis, answer "reserved", send a message, land it in the database. No ledger, no compensation, a dead-letter
queue that nobody reads. It runs behind the same front, queue and poller as the product, so that the two columns of the
drill differ in the design alone.

Where it is kinder than the original, so that the injected faults stand alone:

- The key holds nanoseconds, not milliseconds: a double click never makes the same key twice.
- Orders carry the key under a unique index.
- Only a message that waited long is checked against live stock (see consumer.py).
"""
