"""What the facts of a cluster may be, beyond their type in ``roles/cluster/meta/argument_specs.yml``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from runner.names import hint, shown, valued

CLUSTER_WIDE: Mapping[str, type] = {  # equal on all hosts; runkit reads them, so they are literal
    "cluster_title": str,
    "cluster_card_model": str,
    "cluster_python": str,
    "cluster_mpirun": str,
    "cluster_cidr": str,
    "cluster_interface": str,
    "cluster_fabric": str,
    "cluster_port": int,
    "cluster_data_root": str,
    "cluster_registry": str,
    "cluster_driver": str,
    "cluster_env": dict,
    "cluster_total_cards": int,
    "bench_agent_root": str,
    "bench_agent_python": str,
}
PER_HOST = ("cluster_cards", "ansible_host", "ansible_connection")
OPTIONAL = ("cluster_cidr", "cluster_interface", "cluster_registry", "cluster_driver")  # "" is not stated
MOST_CARDS = 100_000  # of one host; more is a slip of the finger
WORDS = {str: "text", int: "a whole number", dict: "a mapping"}

# The variables of "Environment Variables" in NVIDIA's NCCL documentation (2.4 to 2.28), others that the
# library of 2.32.3 reads, two that torch.distributed used to read, IBEXT_DISABLE of HPC-X's plug-in; without
# "NCCL_". NCCL passes over a misspelt one in silence.
_NCCL_WORDS = """
    ALGO ALLOC_P2P_NET_LL_BUFFERS ASYNC_ERROR_HANDLING BLOCKING_WAIT BUFFSIZE CGA_CLUSTER_SIZE
    CHECKS_DISABLE CHECK_POINTERS COLLNET_ENABLE COLLNET_NODE_THRESHOLD COMM_BLOCKING COMM_ID CONF_FILE
    CROSS_NIC CTA_POLICY CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG DEBUG_FILE DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT
    DEBUG_TIMESTAMP_LEVELS DMABUF_ENABLE ENV_PLUGIN GDRCOPY_ENABLE GDR_FLUSH_DISABLE GIN_ENABLE GIN_PLUGIN
    GIN_TYPE GRAPH_DUMP_FILE GRAPH_FILE GRAPH_MIXING_SUPPORT GRAPH_REGISTER HOSTID IBEXT_DISABLE IBVERBS_LIB
    IB_ADAPTIVE_ROUTING IB_ADDR_FAMILY IB_ADDR_RANGE IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DATA_DIRECT
    IB_DISABLE IB_ECE_ENABLE IB_FIFO_TC IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_MERGE_VFS IB_OOO_RQ
    IB_PCI_RELAXED_ORDERING IB_PKEY IB_QPS_PER_CONNECTION IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS
    IB_ROCE_VERSION_NUM IB_SL IB_SPLIT_DATA_ON_QPS IB_TC IB_TIMEOUT IB_USE_INLINE IGNORE_CPU_AFFINITY
    IPC_USE_ABSTRACT_SOCKET LAUNCH_MODE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER
    LL128_BUFFSIZE LL128_NTHREADS LL_BUFFSIZE LL_THRESHOLD LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS MAX_NRINGS
    MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS MIN_NRINGS MIN_P2P_NCHANNELS MNNVL_CLIQUE_ID
    MNNVL_ENABLE MNNVL_UUID NCHANNELS_PER_NET_PEER NET NETDEVS_POLICY NET_DISABLE_INTRA NET_FORCE_FLUSH
    NET_GDR_C2C NET_GDR_LEVEL NET_GDR_READ NET_OVERHEAD NET_PLUGIN NET_SHARED_BUFFERS NET_SHARED_COMMS
    NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVB_PRECONNECT NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE NVLS_ENABLE
    NVLS_NCHANNELS NVTX_DISABLE OOB_NET_ENABLE OOB_NET_IFNAME P2P_DIRECT_DISABLE P2P_DISABLE P2P_LEVEL
    P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_PXN_LEVEL P2P_READ_ENABLE
    P2P_USE_CUDA_MEMCPY PAT_ENABLE PROFILER_PLUGIN PROTO PROXY_CPUSET PXN_DISABLE RAS_ADDR RAS_ENABLE
    RAS_TIMEOUT_FACTOR RUNTIME_CONNECT SET_STACK_SIZE SET_THREAD_NAME SHM_DISABLE SHM_LOCALITY
    SINGLE_PROC_MEM_REG_ENABLE SINGLE_RING_THRESHOLD SOCKET_FAMILY SOCKET_IFNAME SOCKET_NTHREADS
    SOCKET_POLL_TIMEOUT_MSEC SOCKET_RCVBUF SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_SNDBUF
    TOPO_DUMP_FILE TOPO_FILE TREE_THRESHOLD TUNER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD WIN_ENABLE
    WORK_ARGS_BYTES WORK_FIFO_BYTES
"""
NCCL = frozenset(f"NCCL_{word}" for word in _NCCL_WORDS.split())

_ENV_NAME = re.compile(r"(OMPI|PRTE|PMIX)_MCA_[a-z0-9_]+|[A-Z][A-Z0-9_]*", re.ASCII)


def unfit(key: str, value: Any) -> str | None:
    """Say what is wrong with a fact beyond its type, or None."""
    if key == "cluster_cards":
        fine = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_CARDS
        return (
            None
            if fine
            else f"must be a positive whole number, is {valued(value)}; count the cards of the host"
        )
    if key == "cluster_env" and isinstance(value, Mapping):
        return _unfit_env(value)
    if key in _FORMS and not (value == "" and key in OPTIONAL) and not _FORMS[key][0](str(value)):
        return f"must be {_FORMS[key][1]}, is {valued(value)}"
    return None


def is_inside(address: str, network: str) -> bool:
    """Whether ``address`` lies in ``network``, if that is stated. Names are not looked up, and pass."""
    try:
        return not network or ipaddress.ip_address(address) in ipaddress.ip_network(network)
    except ValueError:
        return True


def _unfit_env(env: Mapping[Any, Any]) -> str | None:
    for name, value in env.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            return f"{shown(name)}: a name has capital letters, digits and _, OMPI_MCA_ aside"
        if name.startswith("NCCL_") and name not in NCCL:
            return f"{shown(name)}: NCCL has no such variable; {hint(name, NCCL)}"
        if not isinstance(value, str):
            return f"{name}: must be text, is {valued(value)}; put it in quotes"
        if not value.isprintable() or "{{" in value or "{%" in value:
            return f"{name}: must be literal, one line of printable text, is {valued(value)}"
    return None


def _is_network(text: str) -> bool:
    try:
        return bool(ipaddress.ip_network(text).num_addresses > 1)
    except ValueError:
        return False


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


# These become words of command lines on the hosts and parts of docker's HOST:INSIDE, hence no blank, comma
# or colon in a path. An interface of Linux has at most 15 characters.
_FORMS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "cluster_cidr": (_is_network, "a network such as 192.168.10.0/24"),
    "cluster_interface": (_matches(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"), "one interface such as eth0"),
    "cluster_port": (lambda text: text.isdigit() and 1024 <= int(text) <= 65535, "a port from 1024 to 65535"),
    "cluster_data_root": (
        _matches(r"(/[A-Za-z0-9_.-]+)+"),
        "a full path such as /data/runkit, without blanks",
    ),
    "cluster_registry": (
        _matches(r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?/([a-z0-9._-]+/)*"),
        "a registry with its port and a slash at the end, such as registry.example.org:5000/",
    ),
    "cluster_driver": (_matches(r"\d{3}(\.\d+){0,2}"), "a version such as 580.173.02"),
    "cluster_total_cards": (
        lambda text: text.isdigit() and int(text) <= MOST_CARDS * MOST_CARDS,
        "the number of all cards, or 0",
    ),
    "ansible_host": (_matches(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"), "a host name or an IPv4 address"),
    "bench_agent_root": (lambda text: text.startswith(("/", "~/")), "a full path, or begin with ~/"),
}
