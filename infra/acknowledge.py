"""cdk-nag findings we accept, each with the reason why it is right here."""

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, *rules: tuple[str, str]) -> None:
    """Accept (rule, reason) on this construct alone."""
    Validations.of(construct).acknowledge(*(Acknowledgment(id=rule, reason=reason) for rule, reason in rules))
