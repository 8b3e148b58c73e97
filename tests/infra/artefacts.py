"""The layers and functions as they are uploaded, laid out as Lambda lays them out, every file of 1980-01-01."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import App
from uv import find_uv_bin

from infra.app import FLAGS, build
from infra.bundling import find_python
from infra.config import environment_from_context

ROOT = Path(__file__).parents[2]
FIRST_OF_1980 = 315532800  # the date of every file in a zip that the CDK makes


@dataclass(frozen=True)
class Artefacts:
    """`opt` holds both layers, `tasks` one folder for each function."""

    python: str
    opt: Path
    tasks: dict[str, Path]
    runtime: Path

    def paths(self, name: str) -> list[Path]:
        """sys.path in Lambda's order: the function, the layers, what the runtime brings."""
        return [self.tasks[name], self.opt / "python", self.runtime]


def build_artefacts(folder: Path, architecture: str) -> Artefacts:
    """Raises ConfigurationError where Python 3.13 cannot be had."""
    python = find_python()
    app = App(context=FLAGS, outdir=str(folder / "cdk.out"))
    build(app, environment_from_context({"env": "dev", "functions.architecture": architecture}))
    app.synth()
    template = json.loads((folder / "cdk.out" / "seckill-dev.template.json").read_text())
    assets = json.loads((folder / "cdk.out" / "seckill-dev.assets.json").read_text())
    sources = {key: folder / "cdk.out" / file["source"]["path"] for key, file in assets["files"].items()}
    opt, tasks = folder / "opt", {}
    for body in template["Resources"].values():
        if body["Type"] == "AWS::Lambda::LayerVersion":
            shutil.copytree(_source(body["Properties"]["Content"], sources), opt, dirs_exist_ok=True)
        handler = body.get("Properties", {}).get("Handler", "")
        if body["Type"] == "AWS::Lambda::Function" and handler.startswith("functions."):
            name = handler.split(".")[1]
            tasks[name] = folder / "var" / name
            shutil.copytree(_source(body["Properties"]["Code"], sources), tasks[name])
    for path in folder.glob("opt/**/*"), folder.glob("var/**/*"):
        for file in path:
            os.utime(file, (FIRST_OF_1980, FIRST_OF_1980))
    return Artefacts(python, opt, tasks, _runtime(folder / "runtime", python))


def _source(code: dict[str, Any], sources: dict[str, Path]) -> Path:
    return sources[code["S3Key"].removesuffix(".zip")]


def _runtime(target: Path, python: str) -> Path:
    """What Lambda's runtime brings beside Python: its interface client and boto3, as locked."""
    requirements = target.with_suffix(".txt")
    export = (find_uv_bin(), "export", "--quiet", "--frozen", "--only-group", "lambda-runtime", "--no-emit-project")
    _run(*export, "--output-file", str(requirements))
    install = (
        find_uv_bin(),
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--link-mode",
        "copy",
        "--compile-bytecode",
    )
    _run(*install, "--python", python, "--target", str(target), "--requirement", str(requirements))
    return target


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, capture_output=True)
