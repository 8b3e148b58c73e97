"""Two zones, no way out, groups that name each other."""

from typing import Any

from tests.infra.deployment import Deployment, text


def test_the_vpc_has_two_zones_of_isolated_subnets_and_neither_gateway_nor_nat(
    deployment: Deployment,
) -> None:
    assert len(deployment.resources("AWS::EC2::Subnet")) == 2
    for kind in ("AWS::EC2::NatGateway", "AWS::EC2::InternetGateway", "AWS::EC2::Route"):
        assert deployment.resources(kind) == []
    assert not any(s.properties.get("MapPublicIpOnLaunch") for s in deployment.resources("AWS::EC2::Subnet"))


def test_flow_logs_of_all_traffic_are_kept(deployment: Deployment) -> None:
    flow_log = deployment.one("AWS::EC2::FlowLog").properties
    assert flow_log["TrafficType"] == "ALL"
    assert flow_log["ResourceType"] == "VPC"


def test_only_sqs_and_sns_have_endpoints_and_only_the_functions_reach_them(deployment: Deployment) -> None:
    endpoints = deployment.resources("AWS::EC2::VPCEndpoint")
    services = {text(endpoint.properties["ServiceName"]).rpartition(".")[2] for endpoint in endpoints}
    assert services == {"sqs", "sns"}
    for endpoint in endpoints:
        assert endpoint.properties["PrivateDnsEnabled"] is True
        [group] = endpoint.properties["SecurityGroupIds"]
        group_id = group["Fn::GetAtt"][0]
        assert [(rule["source"], rule["port"]) for rule in _ingress(deployment) if rule["target"] == group_id] == [
            (_group(deployment, "The Lambda functions"), 443)
        ]


def test_the_only_ways_are_functions_to_proxy_redis_and_endpoints_and_proxy_to_database(
    deployment: Deployment,
) -> None:
    names = {
        group.id: group.properties["GroupDescription"] for group in deployment.resources("AWS::EC2::SecurityGroup")
    }
    ways = [(names[rule["source"]], names[rule["target"]]) for rule in _ingress(deployment)]
    # Each once: EC2 refuses a rule that is already there.
    assert sorted(ways) == [
        ("RDS Proxy", "The database server"),
        ("The Lambda functions", "Interface endpoints of AWS services"),
        ("The Lambda functions", "RDS Proxy"),
        ("The Lambda functions", "The ElastiCache nodes"),
    ]


def test_security_groups_name_each_other_and_never_an_address(deployment: Deployment) -> None:
    for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"):
        for rule in deployment.resources(kind):
            assert not {"CidrIp", "CidrIpv6", "SourcePrefixListId"} & set(rule.properties), rule.id
    for group in deployment.resources("AWS::EC2::SecurityGroup"):
        assert "SecurityGroupIngress" not in group.properties
        for rule in group.properties.get("SecurityGroupEgress", []):
            # EC2's way to say "nothing": without any rule it would open everything.
            assert rule["CidrIp"] == "255.255.255.255/32"
            assert rule["IpProtocol"] == "icmp"


def _ingress(deployment: Deployment) -> list[dict[str, Any]]:
    return [
        {
            "source": rule.properties["SourceSecurityGroupId"]["Fn::GetAtt"][0],
            "target": rule.properties["GroupId"]["Fn::GetAtt"][0],
            "port": rule.properties["FromPort"],
        }
        for rule in deployment.resources("AWS::EC2::SecurityGroupIngress")
    ]


def _group(deployment: Deployment, description: str) -> str:
    return next(
        group.id
        for group in deployment.resources("AWS::EC2::SecurityGroup")
        if group.properties["GroupDescription"] == description
    )
