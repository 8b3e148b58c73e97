"""Log groups: kept as long, and removed with the stack or not, as the environment says."""

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.config import LOG_DAYS, Environment
from infra.keeping import removal_policy

_RETENTION = dict(
    zip(
        LOG_DAYS,
        (
            logs.RetentionDays.ONE_DAY,
            logs.RetentionDays.THREE_DAYS,
            logs.RetentionDays.FIVE_DAYS,
            logs.RetentionDays.ONE_WEEK,
            logs.RetentionDays.TWO_WEEKS,
            logs.RetentionDays.ONE_MONTH,
            logs.RetentionDays.TWO_MONTHS,
            logs.RetentionDays.THREE_MONTHS,
            logs.RetentionDays.FOUR_MONTHS,
            logs.RetentionDays.FIVE_MONTHS,
            logs.RetentionDays.SIX_MONTHS,
            logs.RetentionDays.ONE_YEAR,
        ),
        strict=True,
    )
)


def log_group(
    scope: Construct, construct_id: str, *, environment: Environment, name: str | None = None
) -> logs.LogGroup:
    """A log group. `name` only where a service insists on one (RDS), so that the stack owns the group and
    its retention."""
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        retention=_RETENTION[environment.log_days],
        removal_policy=removal_policy(environment),
    )
