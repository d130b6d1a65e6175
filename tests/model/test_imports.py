"""What importing the model costs: nothing beyond Arrow itself."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "names table properties filters.predicate filters.predicate_text partitions filters.partition_pruning "
    "auto_partition bucketing"
)


def test_the_model_imports_no_compute_kernels_and_no_frames() -> None:
    program = "import sys\n"
    program += "".join(f"import strom.model.{module}\n" for module in MODULES.split())
    program += "print([name for name in ('pyarrow.compute', 'pandas', 'asyncio') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
