"""Hydra's submitit launcher with berth as its cluster: hydra/launcher=berth."""

from dataclasses import dataclass
from typing import Optional

from hydra.core.config_store import ConfigStore
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher


class BerthLauncher(BaseSubmititLauncher):
    _EXECUTOR = "berth"


@dataclass
class BerthQueueConf(BaseQueueConf):
    """The settings of a job. Add fields of berth's (berth help jobspec) as you need them."""

    _target_: str = "hydra_plugins.berth_launcher.BerthLauncher"
    gpus_per_node: Optional[int] = 1
    vram: Optional[str] = None
    priority: int = 0
    signal_delay_s: int = 90
    max_num_timeout: int = 3
    array_parallelism: Optional[int] = None


ConfigStore.instance().store(group="hydra/launcher", name="berth", node=BerthQueueConf(), provider="berth_launcher")
