"""python app.py --multirun lr=1e-2,1e-3 width=32,64 hydra/launcher=berth hydra.launcher.vram=2G"""

import sys
from pathlib import Path

import hydra

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from trial import train  # noqa: E402


@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config):
    result = train(config.lr, config.width)
    print("result", result)
    return result["loss"]


if __name__ == "__main__":
    main()
