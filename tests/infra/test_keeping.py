"""dev leaves nothing behind; prod keeps its data."""

import json

import pytest

from tests.infra.deployment import Deployment

STATEFUL = (
    "AWS::RDS::DBInstance",
    "AWS::RDS::DBCluster",
    "AWS::RDS::DBSubnetGroup",  # the database cannot be anywhere else
    "AWS::ElastiCache::ReplicationGroup",
    "AWS::Cognito::UserPool",
    "AWS::Logs::LogGroup",
    "AWS::KMS::Key",
)


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_stateful_resource_goes_or_stays_with_the_environment(deployment: Deployment, kind: str) -> None:
    # What is kept is not kept of a creation that failed: nothing is in it, and its name would stop the next attempt.
    deleted, replaced = ("RetainExceptOnCreate", "Retain") if deployment.environment.keep_data else ("Delete", "Delete")
    for resource in deployment.resources(kind):
        assert resource.body["DeletionPolicy"] == deleted, resource.id
        assert resource.body["UpdateReplacePolicy"] == replaced, resource.id


def test_nothing_else_is_left_behind(deployment: Deployment) -> None:
    bodies = [*deployment.data["Resources"].values(), *deployment.service["Resources"].values()]
    kept = {body["Type"] for body in bodies if body.get("DeletionPolicy", "Delete") != "Delete"}
    assert kept <= set(STATEFUL)


def test_dev_takes_no_final_snapshot_and_keeps_no_backups(dev: Deployment) -> None:
    bodies = [*dev.data["Resources"].values(), *dev.service["Resources"].values()]
    assert not [body for body in bodies if body.get("DeletionPolicy") == "Snapshot"]
    assert dev.one("AWS::RDS::DBInstance").properties["DeleteAutomatedBackups"] is True


def test_every_log_group_forgets(deployment: Deployment) -> None:
    groups = deployment.resources("AWS::Logs::LogGroup")
    assert {group.properties["RetentionInDays"] for group in groups} == {deployment.environment.log_days}


def test_every_function_names_its_log_group_so_that_lambda_makes_none(deployment: Deployment) -> None:
    for function in deployment.resources("AWS::Lambda::Function"):
        assert "LogGroup" in function.properties["LoggingConfig"], function.id


def test_neither_stack_can_be_deleted_by_mistake_where_data_is_kept(deployment: Deployment) -> None:
    manifest = json.loads((deployment.folder / "manifest.json").read_text())
    stacks = [entry for entry in manifest["artifacts"].values() if entry["type"] == "aws:cloudformation:stack"]
    protected = [entry["properties"].get("terminationProtection", False) for entry in stacks]
    assert protected == [deployment.environment.keep_data] * 2
