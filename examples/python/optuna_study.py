"""An Optuna study whose trials are jobs: pip install optuna; python optuna_study.py"""

import optuna
from trial import train

from berth import BerthExecutor

TRIALS, AT_ONCE = 12, 4
optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
with BerthExecutor(vram="2G", name="optuna") as executor:
    for _ in range(TRIALS // AT_ONCE):
        asked = [study.ask() for _ in range(AT_ONCE)]
        rates = [trial.suggest_float("lr", 1e-5, 1e-1, log=True) for trial in asked]
        widths = [trial.suggest_categorical("width", [16, 32, 64]) for trial in asked]
        for trial, result in zip(asked, executor.map(train, rates, widths)):
            study.tell(trial, result["loss"])
print("best:", study.best_params, round(study.best_value, 3), f"of {len(study.trials)}")
