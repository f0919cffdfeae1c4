"""The words of tables and reports, per language; what a layout shows, its reference file words itself."""

from __future__ import annotations

from collections.abc import Mapping

from runner.errors import UsageError
from runner.names import hint, shown

LANGUAGES = ("en", "zh")

_MESSAGES: Mapping[str, Mapping[str, str]] = {
    "en": {
        "cards": "Cards",
        "precision": "Precision",
        "batch_size": "Batch size",
        "unit": "Unit",
        "log": "Log",
        "family": "Family",
        "rate": "Throughput",
        "rule": "Rule",
        "records": "Records",
        "problems": "Problems",
        "time_to_train": "Time to train (s)",
        "time_to_target": "Time to target (s)",
        "accuracy": "Accuracy (%)",
        "speed_up": "Speed-up",
        "column": "Column",
        "computed": "Computed",
        "item": "Item",
        "value": "Value",
        "sha256": "SHA-256",
        "lines": "Lines",
        "table": "Table",
        "published_as": "Published as",
        "found_in_logs": "Found in the logs",
        "throughput_of": "{workload}, {mode}: throughput ({unit})",
        "results_of": "{workload}, {mode}, {setting}: all figures (throughput in {unit})",
        "figures_from": "Where the figures come from",
        "not_in_layout": "Not in this layout",
        "environment": "Environment, as published",
        "logs_published": "Logs, as published",
        "as_logged": "the log's own figure",
        "source": "Published in {place}",
        "unlisted": "* batch size {batch_size} is none that the workload lists",
        "median_of": "{cell}: median of {n} repeats",
        "some_repeats": "{cell}: median of the {n} of {of} repeats that were measured",
        "not_measured": "{cell}: {state}: {reason}",
        "problem": "{cell}: {code}: {detail}",
        "cell": "cards {cards}, {setting}",
        "no_reason": "no reason was recorded",
        "contradicts": "{cell}: left out, {log} says {what} {says}",
        "several_runs": "{cell}: left out, {log} holds {n} runs",
        "several_logs": "{cell}: left out, several different logs are named {log}",
        "not_understood": "{cell}: left out, no run was found in {log}",
        "several_fit": "{cell}: left out, several logs fit: {logs}; name one of them as the source",
        "no_figure": "{cell}: left out, {rule} gives no figure for {log}",
        "filled": "† {cell}: filled from {log} by {rule}; the publication names no such log",
        "differs": "{cell}: published as {published}; its log gives {shown}",
        "unlike": "{cell}: not like for like with {base}: {why}",
        "one_card": "1 card",
        "hardware": "hardware",
        "averaging": "averaging",
        "mode": "mode",
        "date": "date",
        "absent": "published figures without a log here: {n}",
    },
    "zh": {
        "cards": "卡数",
        "precision": "精度",
        "batch_size": "批大小",
        "unit": "单位",
        "log": "日志",
        "family": "日志格式",
        "rate": "吞吐率",
        "rule": "取值规则",
        "records": "记录数",
        "problems": "问题",
        "time_to_train": "训练时间（s）",
        "time_to_target": "达标时间（s）",
        "accuracy": "准确率（%）",
        "speed_up": "加速比",
        "column": "列",
        "computed": "计算值",
        "item": "项目",
        "value": "内容",
        "sha256": "SHA-256",
        "lines": "行号",
        "table": "表",
        "published_as": "公布的路径",
        "found_in_logs": "日志中的结果",
        "throughput_of": "{workload}，{mode}：吞吐率（{unit}）",
        "results_of": "{workload}，{mode}，{setting}：全部结果（吞吐率单位：{unit}）",
        "figures_from": "数据来源",
        "not_in_layout": "不属于本报告的日志",
        "environment": "公布的环境",
        "logs_published": "公布的日志",
        "as_logged": "日志自身给出的数值",
        "source": "公布于 {place}",
        "unlisted": "* 批大小 {batch_size} 不在该工作负载的列表中",
        "median_of": "{cell}：{n} 次重复的中位数",
        "some_repeats": "{cell}：{of} 次重复中测得 {n} 次，取其中位数",
        "not_measured": "{cell}：{state}：{reason}",
        "problem": "{cell}：{code}：{detail}",
        "cell": "{cards}卡，{setting}",
        "no_reason": "没有记录原因",
        "contradicts": "{cell}：不采用，{log} 中的 {what} 为 {says}",
        "several_runs": "{cell}：不采用，{log} 中有 {n} 次运行",
        "several_logs": "{cell}：不采用，有多个不同的日志名为 {log}",
        "not_understood": "{cell}：不采用，{log} 中没有找到任何运行",
        "several_fit": "{cell}：不采用，有多个日志符合：{logs}；请只指定其中一个作为来源",
        "no_figure": "{cell}：不采用，{rule} 在 {log} 上没有结果",
        "filled": "† {cell}：由 {log} 按 {rule} 填入，公布的报告未引用该日志",
        "differs": "{cell}：公布值为 {published}，其日志给出 {shown}",
        "unlike": "{cell}：与 {base} 不可直接相比：{why}",
        "one_card": "1卡",
        "hardware": "硬件",
        "averaging": "取值规则",
        "mode": "模式",
        "date": "日期",
        "absent": "已公布但此处没有日志的数值：{n} 个",
    },
}


class Messages:
    """The catalogue of one language: ``messages("median_of", cell=..., n=3)``."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.texts = _MESSAGES[language]

    def __call__(self, key: str, **values: object) -> str:
        return self.texts[key].format(**values)


def messages(language: str) -> Messages:
    """Give the catalogue of a language. Raises UsageError where there is none."""
    if language not in _MESSAGES:
        raise UsageError(f"--lang {shown(language)}: unknown; {hint(language, LANGUAGES)}")
    return Messages(language)
