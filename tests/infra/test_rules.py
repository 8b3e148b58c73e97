"""cfn-lint, and the AWS Solutions rules of cdk-nag, find nothing; and both are really asked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.deployment import CONFIGURATIONS, Deployment

ROOT = Path(__file__).parents[2]


def test_cdk_nag_finds_nothing_that_is_not_acknowledged(deployment: Deployment) -> None:
    # A finding fails the synth already; a warning would be in the report.
    report = json.loads((deployment.folder / "validation-report.json").read_text())
    assert [plugin for plugin in report["pluginReports"] if plugin["violations"]] == []


def test_cdk_nag_is_really_asked(tmp_path: Path) -> None:
    from aws_cdk import App, Stack  # noqa: PLC0415
    from aws_cdk import aws_sqs as sqs  # noqa: PLC0415

    from infra.app import FLAGS, build  # noqa: PLC0415
    from infra.config import DEV  # noqa: PLC0415

    app = App(context={**FLAGS, "aws:cdk:bundling-stacks": []}, outdir=str(tmp_path / "out"))
    build(app, DEV)
    sqs.Queue(Stack(app, "careless"), "QueueWithoutTls")
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    assert "AwsSolutions-SQS4" in (tmp_path / "out" / "validation-report.json").read_text()


def test_every_acknowledged_finding_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_cdk import App, Validations  # noqa: PLC0415

    from infra.app import FLAGS, build  # noqa: PLC0415
    from infra.config import environment_from_context  # noqa: PLC0415

    acknowledged: set[str] = set()
    reported: set[str] = set()
    monkeypatch.setattr(
        Validations, "acknowledge", lambda _self, *rules: acknowledged.update(rule.id for rule in rules)
    )
    for name, context in CONFIGURATIONS.items():
        folder = tmp_path / name
        app = App(context={**FLAGS, "aws:cdk:bundling-stacks": []}, outdir=str(folder))
        build(app, environment_from_context(context))
        with pytest.raises(RuntimeError, match="ValidationFailed"):
            app.synth()
        report = json.loads((folder / "validation-report.json").read_text())
        reported |= {found["ruleName"] for plugin in report["pluginReports"] for found in plugin["violations"]}
    assert reported == acknowledged


def test_cfn_lint_finds_nothing(deployments: Any) -> None:
    templates = [
        str(template) for name in CONFIGURATIONS for template in deployments(name).folder.glob("*.template.json")
    ]
    assert len(templates) == 2 * len(CONFIGURATIONS)
    done = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), *templates],
        cwd=ROOT,  # where .cfnlintrc is
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_infra_imports_only_the_cdk_and_the_standard_library() -> None:
    import ast  # noqa: PLC0415

    allowed = {
        *sys.stdlib_module_names,
        "aws_cdk",
        "constructs",
        "cdk_nag",
        "jsii",
        "uv",
        "infra",
    }  # uv bundles the layers
    for path in sorted((ROOT / "infra").rglob("*.py")):
        if path.parent.name == "on_deploy":
            continue  # runs on Lambda, not in the app
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert {name.partition(".")[0] for name in names} <= allowed, path
