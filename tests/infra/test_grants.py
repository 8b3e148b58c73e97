"""What each role may do: the whole list, so that a grant more is a failing test."""

from typing import Any

import pytest

from infra.database import APP_USER, MASTER_USER
from tests.infra.deployment import Deployment, text

OWN_LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}
TRACES = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
NETWORK = {
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}
DESCRIBE = {"ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"}
STORES = {"rds-db:connect", "elasticache:Connect"}
CONSUME = {
    "sqs:ReceiveMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
}
SEND = {"sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
EVERY = OWN_LOG | TRACES | NETWORK | DESCRIBE | STORES
GRANTS = {
    "reserve": EVERY | SEND,
    "land_order": EVERY | CONSUME,
    "reconcile": EVERY | CONSUME | SEND | {"sns:Publish", "kms:GenerateDataKey", "kms:Decrypt"},
    "sale_admin": EVERY | CONSUME | SEND,
}
# AWS knows no resource for them: the service authorization reference lists only "*".
WITHOUT_RESOURCE = TRACES | DESCRIBE


@pytest.mark.parametrize("name", GRANTS)
def test_a_function_may_do_exactly_this(deployment: Deployment, name: str) -> None:
    granted = {action for statement in _statements(deployment, name) for action in _actions(statement)}
    assert granted == GRANTS[name]


@pytest.mark.parametrize("name", GRANTS)
def test_and_on_exactly_these_resources(deployment: Deployment, name: str) -> None:
    granted: dict[str, set[str]] = {}
    for statement in _statements(deployment, name):
        for action in _actions(statement):
            granted.setdefault(action, set()).update(map(deployment.resolved, _as_list(statement["Resource"])))
    assert granted == _allowed(deployment, name)


@pytest.mark.parametrize("name", GRANTS)
def test_only_what_has_no_resource_is_granted_on_all(deployment: Deployment, name: str) -> None:
    for statement in _statements(deployment, name):
        assert statement["Effect"] == "Allow"
        if statement["Resource"] == "*":
            assert _actions(statement) <= WITHOUT_RESOURCE
        for resource in _resources(statement):
            if resource.endswith(":*/*"):
                assert _actions(statement) == NETWORK  # whose ids nobody knows before, as Lambda's documentation says
            elif "*" in resource:
                assert resource == "*"


def test_reserve_sends_to_the_two_queues_and_reads_none(deployment: Deployment) -> None:
    sends = [s for s in _statements(deployment, "reserve") if "sqs:SendMessage" in _actions(s)]
    urls = deployment.function("reserve").properties["Environment"]["Variables"]
    allowed = {resource.strip("<>").split(".")[0] for s in sends for resource in _resources(s)}
    assert allowed == {urls["LANDING_QUEUE_URL"]["Ref"], urls["RECONCILE_QUEUE_URL"]["Ref"]}


def test_reconcile_and_sale_admin_send_only_what_failed_asynchronously(deployment: Deployment) -> None:
    for name in ("reconcile", "sale_admin"):
        function = deployment.function(name)
        [destination] = [
            config.properties["DestinationConfig"]["OnFailure"]["Destination"]
            for config in deployment.resources("AWS::Lambda::EventInvokeConfig")
            if config.properties["FunctionName"] == {"Ref": function.id}
        ]
        sends = [s for s in _statements(deployment, name) if "sqs:SendMessage" in _actions(s)]
        assert [resource for s in sends for resource in _resources(s)] == [text(destination)]


def test_redis_is_granted_for_this_group_and_this_user_only(deployment: Deployment) -> None:
    user = next(
        user.properties["UserName"]
        for user in deployment.resources("AWS::ElastiCache::User")
        if user.properties["UserName"] != "default"
    )
    for name in GRANTS:
        [connect] = [s for s in _statements(deployment, name) if "elasticache:Connect" in _actions(s)]
        resources = _resources(connect)
        assert len(resources) == 2
        assert sum(f":user:{user}" in resource for resource in resources) == 1
        assert sum(":replicationgroup:<" in resource for resource in resources) == 1


def test_no_role_of_ours_has_a_managed_policy(deployment: Deployment) -> None:
    managed = {
        text(policy)
        for role in deployment.resources("AWS::IAM::Role")
        for policy in role.properties.get("ManagedPolicyArns", [])
    }
    # RDS asks for the first by name; the second is of the CDK's own provider framework.
    assert {policy.rpartition("/")[2] for policy in managed} == {
        "AmazonRDSEnhancedMonitoringRole",
        "AWSLambdaBasicExecutionRole",
    }


def test_the_deployment_invokes_sale_admin_and_nothing_else(deployment: Deployment) -> None:
    admin = deployment.function("sale_admin")
    [handler] = [
        function
        for function in deployment.resources("AWS::Lambda::Function")
        if function.properties.get("Environment", {}).get("Variables", {}).get("SALE_ADMIN")
    ]
    invokes = [
        statement
        for statement in deployment.statements(deployment.role_of(handler))
        if "lambda:InvokeFunction" in _actions(statement)
    ]
    assert [statement["Resource"] for statement in invokes] == [{"Fn::GetAtt": [admin.id, "Arn"]}]
    assert "VpcConfig" not in handler.properties  # it calls the Lambda API, which has no endpoint inside


def _allowed(deployment: Deployment, name: str) -> dict[str, set[str]]:
    """Each action of a function's role, with the resources that it needs and no others."""
    queues = {what: f"<{queue}.Arn>" for what, queue in deployment.queues().items()}
    consumes, sends, measures = {
        "reserve": ((), ("landing", "reconcile"), ()),
        "land_order": (("landing",), (), ()),
        # A dead letter is rescued by one and resolved by the other; the landing queue's depth is one of the accounts.
        "reconcile": (("reconcile", "beat", "dead landing"), ("failures",), ("landing",)),
        "sale_admin": (("dead landing",), ("failures",), ("landing",)),
    }[name]
    account = "<AWS::Region>:<AWS::AccountId>"
    users = [APP_USER, MASTER_USER] if name == "sale_admin" else [APP_USER]
    log = deployment.function(name).properties["LoggingConfig"]["LogGroup"]["Ref"]
    redis = deployment.one("AWS::ElastiCache::ReplicationGroup")
    redis_users = {user.properties["UserName"] for user in deployment.resources("AWS::ElastiCache::User")}
    [redis_user] = redis_users - {"default"}
    allowed: dict[str, set[str]] = {}
    for actions, resources in (
        (OWN_LOG, {f"<{log}.Arn>"}),
        (WITHOUT_RESOURCE, {"*"}),
        (NETWORK, {f"arn:<AWS::Partition>:ec2:{account}:*/*"}),
        (
            {"rds-db:connect"},
            {f"arn:<AWS::Partition>:rds-db:{account}:dbuser:{_proxy_id(deployment)}/{user}" for user in users},
        ),
        (
            {"elasticache:Connect"},
            {
                f"arn:<AWS::Partition>:elasticache:{account}:replicationgroup:<{redis.id}>",
                f"arn:<AWS::Partition>:elasticache:{account}:user:{redis_user}",
            },
        ),
        (CONSUME, {queues[queue] for queue in consumes}),
        (SEND, {queues[queue] for queue in sends}),
        ({"sqs:GetQueueAttributes"}, {queues[queue] for queue in measures}),
    ):
        for action in actions if resources else ():
            allowed.setdefault(action, set()).update(resources)
    if name == "reconcile":
        topic = deployment.function(name).properties["Environment"]["Variables"]["NOTICE_TOPIC_ARN"]
        key = f"<{deployment.one('AWS::KMS::Key').id}.Arn>"
        allowed |= {"sns:Publish": {text(topic)}, "kms:GenerateDataKey": {key}, "kms:Decrypt": {key}}
    return allowed


def _proxy_id(deployment: Deployment) -> str:
    """The id that IAM knows the proxy by, the last part of its ARN: where the database itself would be a way round."""
    proxy = deployment.one("AWS::RDS::DBProxy")
    [imported] = [
        output["Export"]["Name"]
        for output in deployment.data["Outputs"].values()
        if output["Value"] == {"Fn::GetAtt": [proxy.id, "DBProxyArn"]}
    ]
    return text({"Fn::Select": [6, {"Fn::Split": [":", {"Fn::ImportValue": imported}]}]})


def _statements(deployment: Deployment, name: str) -> list[dict[str, Any]]:
    return deployment.statements(deployment.role_of(deployment.function(name)))


def _actions(statement: dict[str, Any]) -> set[str]:
    actions = statement["Action"]
    return {actions} if isinstance(actions, str) else set(actions)


def _resources(statement: dict[str, Any]) -> list[str]:
    return [text(resource) for resource in _as_list(statement["Resource"])]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
