"""What becomes of data when its stack is deleted: it stays in prod, and goes in dev."""

from aws_cdk import RemovalPolicy

from infra.config import Environment


def removal_policy(environment: Environment) -> RemovalPolicy:
    """Where data is kept, what a failed first deployment made goes all the same: nothing is in it yet, and its name
    would be in the way of the next attempt."""
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if environment.keep_data else RemovalPolicy.DESTROY
