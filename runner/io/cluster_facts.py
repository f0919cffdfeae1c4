"""What the facts of a cluster may be, beyond their type in ``roles/cluster/meta/argument_specs.yml``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from itertools import takewhile
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
PER_HOST = ("cluster_cards", "ansible_host", "ansible_connection", "host_names_address")
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

# What is set most of UCX ("ucx_info -c" of 1.13.1, and UCX_IB_* of its documentation) and of Open
# MPI's parameters (ompi_info --all of 3.1 to 5.0). Both have many hundreds, by transport, version and build,
# so that another name is no error, and one that a slip of the finger makes of these is.
_UCX_WORDS = """
    ACC_DEVICES ADDRESS_VERSION BCOPY_THRESH ERROR_SIGNALS HANDLE_ERRORS IB_GID_INDEX IB_GPU_DIRECT_RDMA
    IB_NUM_PATHS IB_PCI_RELAXED_ORDERING IB_PKEY IB_PREFER_NEAREST_DEVICE IB_REG_METHODS IB_SL
    IB_TRAFFIC_CLASS KEEPALIVE_INTERVAL LOG_FILE LOG_LEVEL MAX_EAGER_RAILS MAX_RNDV_RAILS MEMTYPE_CACHE
    MODULES MODULE_DIR NET_DEVICES POSIX_USE_PROC_LINK PROTO_ENABLE PROTO_INFO RNDV_SCHEME
    RNDV_THRESH SHM_DEVICES SOCKADDR_TLS_PRIORITY TLS UNIFIED_MODE WARN_UNUSED_ENV_VARS ZCOPY_THRESH
"""
_OPEN_MPI_WORDS = """
    bml btl btl_openib_allow_ib btl_openib_cpc_include btl_openib_gid_index btl_openib_if_exclude
    btl_openib_if_include btl_openib_rroce_enable btl_tcp_if_exclude btl_tcp_if_include btl_tcp_links
    btl_tcp_port_min_v4 btl_tcp_port_min_v6 btl_tcp_port_range_v4 btl_tcp_port_range_v6
    btl_vader_single_copy_mechanism coll coll_hcoll_enable fbtl fcoll hwloc_base_binding_policy
    mpi_warn_on_fork mtl oob_tcp_dynamic_ipv4_ports oob_tcp_dynamic_ipv6_ports oob_tcp_if_exclude
    oob_tcp_if_include opal_cuda_support orte_base_help_aggregate orte_tmpdir_base osc plm plm_rsh_agent
    plm_rsh_args plm_rsh_no_tree_spawn pml pml_ucx_devices pml_ucx_tls rmaps_base_mapping_policy rml scoll
    spml
"""
_OFTEN = {
    **{name.upper(): name for name in NCCL},
    **{f"UCX_{word}": f"UCX_{word}" for word in _UCX_WORDS.split()},
    **{f"OMPI_MCA_{word}".upper(): f"OMPI_MCA_{word}" for word in _OPEN_MPI_WORDS.split()},
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_NUMBERS = re.compile(r"[0-9.]+", re.ASCII)
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
    """Whether ``address`` is that of a host in ``network``, if stated. Names are not looked up, and pass."""
    if not network or not _NUMBERS.fullmatch(address):
        return True
    whole = ipaddress.ip_network(network)
    ends = (whole.network_address, whole.broadcast_address) if whole.num_addresses > 2 else ()
    return (
        _is_host(address)
        and ipaddress.ip_address(address) in whole
        and ipaddress.ip_address(address) not in ends
    )


def _unfit_env(env: Mapping[Any, Any]) -> str | None:
    for name, value in env.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            return f"{shown(name)}: a name has capital letters, digits and _, OMPI_MCA_ aside"
        if name.startswith("NCCL_") and name not in NCCL:
            return f"{shown(name)}: NCCL has no such variable; {hint(name, NCCL)}"
        if meant := _meant(name):
            return f"{shown(name)}: is one letter off; nearest: {meant}"
        if not isinstance(value, str):
            return f"{name}: must be text, is {valued(value)}; put it in quotes"
        if not value.isprintable() or "{{" in value or "{%" in value:
            return f"{name}: must be literal, one line of printable text, is {valued(value)}"
    return None


def _meant(name: str) -> str | None:
    """The variable that is set often and that a slip makes ``name`` of; None where it may be meant."""
    upper = name.upper()
    if name in _OFTEN.values():
        return None
    return _OFTEN.get(upper) or next((right for key, right in _OFTEN.items() if _slip(upper, key)), None)


def _slip(word: str, right: str) -> bool:
    """Whether a letter is wrong, missing or too much, or two stand in the wrong order."""
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, right, strict=False)))
    a, b = word[alike:], right[alike:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def _is_network(text: str) -> bool:
    try:
        return bool(ipaddress.ip_network(text).num_addresses > 1)
    except ValueError:
        return False


def _is_host(text: str) -> bool:
    """Whether it is an IPv4 address or may be a name: what has no letter and is no address is a slip."""
    try:
        return _NAME.fullmatch(text) is not None and bool(
            not _NUMBERS.fullmatch(text) or ipaddress.ip_address(text)
        )
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
    "ansible_host": (_is_host, "a host name or an IPv4 address"),
    "bench_agent_root": (lambda text: text.startswith(("/", "~/")), "a full path, or begin with ~/"),
}
