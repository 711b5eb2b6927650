from __future__ import annotations

import pytest

from safelaunch.hostfacts import gpu_models, machine
from safelaunch.hostfacts.tools import gpu_errors
from safelaunch.hostfacts.tools.recognise import read_report

XML = """<?xml version="1.0" ?>
<nvidia_smi_log>
<driver_version>570.86.15</driver_version><cuda_version>12.8</cuda_version>
<attached_gpus>2</attached_gpus>
<gpu id="00000000:1B:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>
<uuid>GPU-1</uuid><fb_memory_usage><total>81559 MiB</total><used>[N/A]</used></fb_memory_usage>
<mig_mode><current_mig>Disabled</current_mig></mig_mode>
<fabric><state>Completed</state><status>Success</status></fabric>
<processes><process_info><pid>77</pid><type>C</type><process_name>python, a</process_name>
<used_memory>500 MiB</used_memory></process_info></processes></gpu>
<gpu id="00000000:43:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-2</uuid>
</gpu></nvidia_smi_log>
"""
CSV = "nvidia-smi --query-gpu=index,uuid,compute_cap --format=csv,noheader"


# -- nvidia-smi ------------------------------------------------------------------------------------


def test_xml_tells_fabric_and_processes() -> None:
    result = read_report(XML)
    first = (result.cards or ())[0]
    assert (first.fabric_state, first.fabric_status) == ("Completed", "Success")
    assert (first.memory_mib, first.used_mib) == (81559, None)
    assert [(p.pid, p.card, p.name, p.used_mib) for p in result.processes or ()] == [
        (77, 0, "python, a", 500)
    ]


def test_xml_that_was_cut_tells_the_cards_before_the_cut() -> None:
    result = read_report(XML[: XML.index("GPU-2")])
    assert (result.attached, [card.uuid for card in result.cards or ()]) == (2, ["GPU-1"])


def test_rows_without_a_head_are_read_by_the_command() -> None:
    result = read_report("0, GPU-1, 9.0\n1, GPU-2, [N/A]\n", CSV)
    assert [(c.index, c.uuid, c.compute_capability) for c in result.cards or ()] == [
        (0, "GPU-1", "9.0"),
        (1, "GPU-2", None),
    ]


def test_a_cut_row_is_no_card() -> None:
    assert [card.index for card in read_report("0, GPU-1, 9.0\n1, GP", CSV).cards or ()] == [0]


@pytest.mark.parametrize("word", ["[Not Supported]", "[N/A]", "ERR!", "[Unknown Error]"])
def test_a_cell_that_says_nothing_is_no_value(word: str) -> None:
    text = f"index, name, memory.total [MiB], driver_version\n0, {word}, {word}, {word}\n"
    result = read_report(text)
    (card,) = result.cards or ()
    assert (card.name, card.memory_mib, result.driver) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "kind", "index", "bus"),
    [
        ("Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
         "gpu-handle-unknown", None, "0000:41:00.0"),
        ("Unable to determine the device handle for GPU3: 0000:41:00.0: GPU is lost.  Reboot",
         "gpu-lost", 3, "0000:41:00.0"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make",
         "driver-not-running", None, None),
        ("Failed to initialize NVML: Driver/library version mismatch",
         "driver-library-mismatch", None, None),
        ("Failed to initialize NVML: Driver Not Loaded", "driver-not-running", None, None),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
         "no-library", None, None),
        ("No devices were found", "no-devices", None, None),
        ("Failed to initialize NVML: Insufficient Permissions", "no-permission", None, None),
    ],
)  # fmt: skip
def test_an_error_is_recognised(text: str, kind: str, index: int | None, bus: str | None) -> None:
    (result,) = read_report(text).troubles
    assert (result.kind, result.index, result.bus_id) == (kind, index, bus)
    assert kind in gpu_errors.KINDS


def test_a_healthy_output_has_no_trouble() -> None:
    assert read_report(XML).troubles == ()


def test_the_shell_saying_that_there_is_no_nvidia_smi_in_another_language_is_nothing() -> None:
    result = read_report("bash: nvidia-smi: Kommando nicht gefunden.", "nvidia-smi")
    assert (result.cards, result.vendor, result.troubles) == (None, None, ())


def test_a_matrix_whose_lower_rows_were_cut_is_filled_from_the_upper_ones() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tNV4\nGPU1\tNV4\t X \tNV4\n"
    matrix = read_report(text).matrix
    assert matrix is not None
    assert dict(matrix.pairs) == {(0, 1): "NV4", (0, 2): "NV4", (1, 2): "NV4"}
    assert matrix.fabric == "nvlink-full"


def test_a_matrix_with_unknown_pairs_is_not_called_full() -> None:
    matrix = read_report("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\n").matrix
    assert matrix is not None
    assert matrix.fabric == "nvlink-partial"


def test_amd_smi_tells_cards_in_blocks() -> None:
    text = (
        "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n    BUS:\n        BDF: "
        "0000:05:00.0\n    VRAM:\n        TYPE: HBM\n        SIZE: 196592 MB\nGPU: 1\n    ASIC:\n"
    )
    result = read_report(text, "amd-smi static")
    assert result.vendor == "amd"
    assert [(c.name, c.memory_mib) for c in result.cards or ()] == [
        ("AMD Instinct MI300X", 196592),
        (None, None),
    ]


def test_the_links_of_rocm_smi_are_not_its_weights() -> None:
    rows = "       GPU0  GPU1\nGPU0   0     {0}\nGPU1   {0}     0\n"
    text = f"= ROCm System Management Interface =\n= Weight between two GPUs =\n{rows.format(15)}"
    matrix = read_report(f"{text}= Link Type between two GPUs =\n{rows.format('XGMI')}").matrix
    assert matrix is not None
    assert matrix.fabric == "xgmi-full"


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA RTX 4000 Ada Generation", None),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm"),
        ("A100-PCIE-40GB", "a100-pcie"),
        ("NVIDIA H800 PCIe", None),
        ("NVIDIA GB200 Extra", None),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA GeForce RTX 30...", None),
        ("NVIDIA GeForce RTX 5090 ...", None),
        ("NVIDIA A100-SXM...", "a100-sxm"),
        ("NVIDIA A100 80G...", "a100-pcie"),
        ("NVIDIA H100 80G...", "h100-sxm"),
        ("NVIDIA RTX A600...", "rtxa6000"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("Graphics Device", None),
        (None, None),
    ],
)
def test_a_name_is_matched_whole(name: str | None, model: str | None) -> None:
    assert gpu_models.model_of(name) == model


def test_a_mixed_host_has_a_model_for_each_name() -> None:
    names = ["NVIDIA GeForce GT 710", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"]
    assert gpu_models.models_of(names) == (None, "rtx3090")


# -- the machine -----------------------------------------------------------------------------------


def test_meminfo_is_read_in_bytes() -> None:
    text = (
        "MemTotal:       65751412 kB\nMemFree: 12 kB\nMemAvailable:   60000000 kB\nSwapTotal: 0 kB"
    )
    result = machine.memory(text)
    assert result == {"total": 65751412 << 10, "available": 60000000 << 10, "swap": 0}


def test_an_unreadable_proc_says_nothing() -> None:
    assert machine.memory("") == {}
    assert machine.routes("") == ()
    assert machine.distribution("") is None
    assert machine.memory_limit({}) is None


def test_the_lowest_limit_on_the_way_up_counts() -> None:
    files = {
        "/sys/fs/cgroup/a/b/memory.max": "max\n",
        "/sys/fs/cgroup/a/memory.max": "8589934592\n",
        "/sys/fs/cgroup/memory.max": "17179869184\n",
    }
    assert machine.memory_limit(files) == (8 << 30, "/sys/fs/cgroup/a/memory.max")


def test_the_number_that_stands_for_no_limit_in_cgroup_v1_is_none() -> None:
    path = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    assert machine.memory_limit({path: "9223372036854771712\n"}) is None
    assert machine.memory_limit({path: "1073741824\n"}) == (1 << 30, path)


def test_quotas_of_both_versions_are_in_cores() -> None:
    assert machine.core_limit({"/c/cpu.max": "150000 100000\n", "/cpu.max": "max 100000"}) == (
        1.5,
        "/c/cpu.max",
    )
    old = {"/c/cpu.cfs_quota_us": "400000\n", "/c/cpu.cfs_period_us": "100000\n"}
    assert machine.core_limit(old) == (4.0, "/c/cpu.cfs_quota_us")
    assert machine.core_limit({**old, "/c/cpu.cfs_quota_us": "-1\n"}) is None


def test_the_distribution_is_its_pretty_name() -> None:
    assert machine.distribution('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n') == (
        "Ubuntu 24.04.1 LTS"
    )
    assert machine.distribution("NAME=Alpine\nVERSION_ID=3.20\n") == "Alpine 3.20"


def test_routes_tell_the_way_out_and_the_links() -> None:
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    rows = (
        "eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "ib0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
        "down\t0000000A\t00000000\t0000\t0\t0\t0\t000000FF\t0\t0\t0\n"
        "cut\t0000"
    )
    assert machine.routes(head + rows) == (
        ("eth0", "default", "192.168.0.1"),
        ("ib0", "10.0.0.0/8", None),
    )


def test_the_loaded_driver_is_known_without_nvidia_smi() -> None:
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 2024\nGCC"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"
    assert (machine.driver(closed), machine.driver(opened)) == ("550.90.07", "570.86.15")
    text = "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-??????\nBus Location: \t 0000:1b:00.0\n"
    assert machine.card(text) == {"name": "NVIDIA H100", "bus_id": "0000:1b:00.0"}
