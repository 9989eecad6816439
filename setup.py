"""Maps the top-level folders to `warpsmith.<folder>`; a static list would forget new subpackages."""

from setuptools import find_packages, setup

FOLDERS = ("kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl", "app")
found = find_packages(include=[pattern for folder in FOLDERS for pattern in (folder, f"{folder}.*")])
setup(
    packages=["warpsmith", *(f"warpsmith.{name}" for name in found)],
    package_dir={"warpsmith": "src/warpsmith", **{f"warpsmith.{folder}": folder for folder in FOLDERS}},
)
