"""docs/cost.md is what the script prints, and the script counts what the templates hold."""

from pathlib import Path

from infra import cost
from infra.config import DEV, PROD
from tests.infra.deployment import Deployment

PAGE = Path(__file__).parents[2] / "docs" / "cost.md"


def test_the_page_is_the_scripts() -> None:
    assert PAGE.read_text() == cost.page(), "run: python -m infra.cost > docs/cost.md"


def test_the_quantities_are_the_templates(deployment: Deployment) -> None:
    alarms = deployment.resources("AWS::CloudWatch::Alarm")
    evictions = 2 * deployment.environment.redis.shards  # one metric for each node
    metrics = sum(
        sum("MetricStat" in part for part in alarm.properties["Metrics"]) if "Metrics" in alarm.properties else 1
        for alarm in alarms
    )
    assert metrics - evictions + cost.NODES == cost.ALARM_METRICS
    endpoints = deployment.resources("AWS::EC2::VPCEndpoint")
    assert [len(endpoint.properties["SubnetIds"]) for endpoint in endpoints] == [cost.ZONES] * cost.ENDPOINTS
    assert len(deployment.resources("AWS::Lambda::EventSourceMapping")) == 3
    assert len(deployment.resources("AWS::KMS::Key")) == 1


def test_prod_costs_more_than_dev_and_neither_is_free() -> None:
    rest = [sum(line.dollars for line in cost.at_rest(environment)) for environment in (DEV, PROD)]
    assert 50 < rest[0] < 200 < rest[1] < 1500
