"""Size limits: no function over 80 lines, no file over 600. Prints the total so that growth is seen."""

import ast
import sys
from pathlib import Path

FUNCTION_LIMIT = 80
FILE_LIMIT = 600
PACKAGE = ("kernels", "sandbox", "tools", "prompts", "agents", "graph", "rl", "app", "src")
ASIDE = ("tests", "benchmarks", "scripts", "examples")


def oversized(path: Path) -> list[str]:
    """One line for each limit that the file breaks."""
    text = path.read_text()
    lines = text.count("\n")
    found = [f"{path}: {lines} lines (limit {FILE_LIMIT})"] if lines > FILE_LIMIT else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LIMIT:
                found.append(f"{path}:{node.lineno} {node.name}: {length} lines (limit {FUNCTION_LIMIT})")
    return found


def main(root: Path) -> int:
    """Exit status: 1 if any file of ours breaks a limit."""
    files = [root / "setup.py", *(path for folder in (*PACKAGE, *ASIDE) for path in (root / folder).rglob("*.py"))]
    problems = [line for path in files for line in oversized(path)]
    print("\n".join(problems) if problems else f"size: {len(files)} files within limits")
    package = [path for folder in PACKAGE for path in (root / folder).rglob("*.py")]
    print(f"size: {sum(path.read_text().count(chr(10)) for path in package)} lines in the package")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
