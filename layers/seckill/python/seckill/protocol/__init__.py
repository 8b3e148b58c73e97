"""The verbs of docs/protocol.md, one module each: reserve, abandon, land, rebuild, open a sale."""
