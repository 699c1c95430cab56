"""The settings files in `config/` are true: they load, and what they spell out are the defaults."""

from __future__ import annotations

from pathlib import Path

from tidelog.config.load import load_config
from tidelog.config.schema import BrokerConfig

CONFIG = Path(__file__).parents[3] / "config"


def test_single_toml_is_the_default_broker_spelt_out() -> None:
    config = load_config(str(CONFIG / "single.toml"), {}, {})
    assert config == BrokerConfig()
    assert config.model_fields_set
