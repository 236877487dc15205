"""A PyFlink program finds its names, and importing them pulls in nothing heavy."""

import subprocess
import sys

import millstream.common


def test_all_names_exist():
    assert "WatermarkStrategy" in millstream.common.__all__
    for name in millstream.common.__all__:
        assert getattr(millstream.common, name)


def test_import_is_light():
    code = (
        "import sys, millstream.common\n"
        "heavy = {'pyspark', 'pandas', 'numpy', 'yaml', 'pyarrow', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print(sorted(m for m in sys.modules if m.startswith('millstream.')"
        " and not m.startswith(('millstream.common', 'millstream.errors', 'millstream.names',"
        " 'millstream.redaction', 'millstream.v'))))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n[]\n"
