"""The settings files in `config/` are true: they load, and what they spell out are the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.config.load import load_config
from tidelog.config.schema import BrokerConfig

CONFIG = Path(__file__).parents[3] / "config"


def test_single_toml_is_the_default_broker_spelt_out() -> None:
    config = load_config(str(CONFIG / "single.toml"), {}, {})
    assert config == BrokerConfig()
    assert config.model_fields_set


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_three_brokers_are_told_the_same_but_for_who_they_are(node_id: int) -> None:
    first, config = (load_config(str(CONFIG / "three-brokers" / f"{node}.toml"), {}, {}) for node in (1, node_id))
    own = {
        "node_id": node_id,
        "log_dir": f"tidelog-data-{node_id}",
        "http_listener": f"127.0.0.1:{8081 + node_id}",
        "peer_listener": f"127.0.0.1:{9191 + node_id}",
    }
    assert config == first.model_copy(update=own)
    assert config.cluster_voters[node_id - 1] == f"{node_id}@{config.peer_listener}"
