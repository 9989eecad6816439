"""Import layers: a lower folder never imports a higher one, and every import of ours is absolute."""

import ast
import sys
from pathlib import Path

ALLOWED = {
    "kernels": {"kernels"},
    "sandbox": {"kernels", "sandbox"},
    "tools": {"kernels", "sandbox", "tools"},
    "prompts": {"prompts"},
    "agents": {"kernels", "sandbox", "tools", "prompts", "agents"},
    "graph": {"kernels", "sandbox", "tools", "prompts", "agents", "graph"},
    "rl": {"kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl"},
    "app": {"kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl", "app"},
}


def imported(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and dotted name of every import of this package; relative ones come back as `.`."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.append((node.lineno, "."))
        elif isinstance(node, ast.ImportFrom) and node.module == "warpsmith":
            found += [(node.lineno, f"warpsmith.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
    return found


def violations(root: Path) -> list[str]:
    """One line for each import that the layers forbid."""
    bad = []
    for folder, allowed in ALLOWED.items():
        for path in sorted((root / folder).rglob("*.py")):
            for line, name in imported(ast.parse(path.read_text())):
                parts = name.split(".")
                if name == ".":
                    bad.append(f"{path}:{line}: relative import")
                elif parts[0] in ALLOWED:
                    bad.append(f"{path}:{line}: import {name} bypasses the package, write warpsmith.{name}")
                elif parts[0] == "warpsmith" and parts[1:] and parts[1] in ALLOWED.keys() - allowed:
                    bad.append(f"{path}:{line}: {folder} may not import {parts[1]}")
    return bad


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    lines = violations(where)
    print("\n".join(lines) if lines else "layers: every import goes downward")
    sys.exit(1 if lines else 0)
