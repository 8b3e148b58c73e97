"""The network: two zones, no way out, and who may talk to whom."""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

MYSQL, REDIS, HTTPS = 3306, 6379, 443


class Network(Construct):
    """A VPC of isolated subnets. No NAT: what AWS services the functions call, they reach by an interface endpoint."""

    def __init__(self, scope: Construct, construct_id: str, *, flow_logs: logs.ILogGroup) -> None:
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            max_azs=2,
            nat_gateways=0,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="isolated", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=22)
            ],
            # The rule-less default group would need a custom resource of its own; nothing here uses that group.
            restrict_default_security_group=False,
        )
        self.vpc.add_flow_log("FlowLogs", destination=ec2.FlowLogDestination.to_cloud_watch_logs(flow_logs))
        self.functions = self._group("Functions", "The Lambda functions")
        self.proxy = self._group("Proxy", "RDS Proxy")
        self.database = self._group("Database", "The database server")
        self.redis = self._group("Redis", "The ElastiCache nodes")
        self.endpoints = self._group("Endpoints", "Interface endpoints of AWS services")
        self._allow(self.functions, self.proxy, MYSQL)
        self._allow(self.functions, self.redis, REDIS)
        self._allow(self.functions, self.endpoints, HTTPS)
        # proxy -> database is not here: the proxy's target adds it, and EC2 refuses the same rule twice.
        # reserve and reconcile send to queues; reconcile publishes roll-back notices. Nothing else is
        # called from inside.
        for name, service in (
            ("Sqs", ec2.InterfaceVpcEndpointAwsService.SQS),
            ("Sns", ec2.InterfaceVpcEndpointAwsService.SNS),
        ):
            self.vpc.add_interface_endpoint(name, service=service, open=False, security_groups=[self.endpoints])

    def _group(self, name: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            self,
            name,
            vpc=self.vpc,
            description=description,
            allow_all_outbound=False,
        )

    def _allow(self, source: ec2.SecurityGroup, target: ec2.SecurityGroup, port: int) -> None:
        source.connections.allow_to(target, ec2.Port.tcp(port))
