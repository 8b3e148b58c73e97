"""Logs Insights queries that come with the stack."""

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.functions import Functions


class SavedQueries(Construct):
    """What one asks of the logs after a storm."""

    def __init__(self, scope: Construct, construct_id: str, *, functions: Functions, name: str) -> None:
        super().__init__(scope, construct_id)
        groups = {key: function.log_group for key, function in functions.all.items()}
        self._save(
            f"{name}/One reservation's timeline",
            logs.QueryString(
                # What reserve answered, how the landing went, what an operator decided: each in a field of its own.
                fields=[
                    *("@timestamp", "service", "level", "message", "answer", "landing", "decision"),
                    *("correlation_id", "xray_trace_id"),
                ],
                filter_statements=['pre_deduct_key = "PUT THE KEY HERE"'],
                sort="@timestamp asc",
                limit=1000,
            ),
            list(groups.values()),
        )
        self._save(
            f"{name}/Slowest landings",
            logs.QueryString(
                fields=["@timestamp", "record.requestId", "record.metrics.durationMs", "record.status"],
                filter_statements=['type = "platform.report"'],
                sort="record.metrics.durationMs desc",
                limit=50,
            ),
            [groups["land_order"]],
        )
        self._save(
            f"{name}/Unknown outcomes",
            logs.QueryString(
                fields=["@timestamp", "pre_deduct_key", "sku_id", "correlation_id", "message"],
                filter_statements=['answer = "OUTCOME_UNKNOWN"'],
                sort="@timestamp desc",
                limit=200,
            ),
            [groups["reserve"]],
        )

    def _save(self, name: str, query: logs.QueryString, groups: list[logs.ILogGroup]) -> None:
        logs.QueryDefinition(
            self,
            name.rpartition("/")[2].title().replace(" ", "").replace("'", ""),
            query_definition_name=name,
            query_string=query,
            log_groups=groups,
        )
