"""One module per store, each the only place that knows its client library."""
