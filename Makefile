# Every target that people and CI use. `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
ENGINE ?= tests/engine
# The JVMs of most tests live for seconds. With only the first of Java's two compilers they take half of the CPU; it comes
# with a code cache that Spark overflows, so that has its usual size.
BRIEF := JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

.DEFAULT_GOAL := help
.PHONY: help setup check format test engine nightly docs pictures bench crds crash-matrix many-keys rebuilds rejects replay verdicts model archive kills executors meaning acceptance state point-in-time parity rewritten store-faults redis-cluster poison outage secured deliveries scoring skew rebalances rideshare log-model schedules serving nine-am figures outcomes recommender both-ways

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## Make .venv, fetch every jar, archive Spark's classes (needs Python 3.11+, Java 17+, Maven, redis-server)
	test -d .venv || $(PYTHON) -m venv .venv
	for try in 1 2 3; do $(BIN)/pip install --quiet --upgrade pip && $(BIN)/pip install --quiet -e '.[spark,dev]' && break; sleep 5; test $$try -lt 3; done
	$(BIN)/python -m leftfold.jars fetch

check: ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: ## Let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: ## Tests that need no engine, three files at a time: some of them wait
	$(BIN)/pytest -q -m "not engine" -n 3 --dist loadfile --durations 10

engine: ## Tests on real brokers, registry, Redis and Spark, which they start themselves, two files at a time
	$(BRIEF) $(BIN)/pytest -q -m "engine and not nightly and not long" -n 2 --dist loadfile --durations 25 $(ENGINE)

nightly: ## The engine tests that CI leaves out, two files at a time: more cases, and the long guides
	$(BRIEF) $(BIN)/pytest -q -m nightly -n 2 --dist loadfile --durations 25 $(ENGINE)

kills: ## The long crash test: 1,000,000 events, the driver killed five times, a broker killed
	LEFTFOLD_KILLS=full $(BIN)/pytest -q -m engine tests/engine/test_kills.py -s

executors: ## On a Spark cluster: 1,000,000 events, an executor killed ten times, then a whole worker
	LEFTFOLD_EXECUTORS=full $(BIN)/pytest -q -m engine tests/engine/test_standalone.py -k executors_are_killed -s

meaning: ## Every aggregate over three windows against a brute-force oracle: 2,000,000 events, 20,000 keys
	LEFTFOLD_MEANING=full $(BIN)/pytest -q tests/unit/fold/test_algebra.py tests/engine/test_meaning.py -s

acceptance: ## 1,000,000 records live, after an outage, with a backlog, in three batch sizes: the same tiles
	LEFTFOLD_ACCEPTANCE=full $(BIN)/pytest -q -m engine tests/engine/test_acceptance.py -s

state: ## State rows over 200 batches of moving time
	LEFTFOLD_STATE=full $(BIN)/pytest -q -m engine tests/engine/test_state.py -s

crash-matrix: ## A death at every step of a batch, for every store, and 50 drivers that wake up after they were overtaken
	LEFTFOLD_CRASHES=full $(BIN)/pytest -q -m engine tests/engine/test_crashes.py tests/engine/test_zombies.py -s

verdicts: ## 32 edits of a running view: what the plan says of each against what Spark does
	LEFTFOLD_VERDICTS=full $(BIN)/pytest -q -m engine tests/engine/test_state_verdicts.py -s

model: ## The sizing model, calibrated by a probe, against what is then measured; on a machine that does nothing else
	LEFTFOLD_MODEL=full $(BIN)/pytest -q -m engine tests/engine/test_model.py -s

outage: ## Redis away for 15 minutes, then all brokers: every view goes on by itself, and memory is flat meanwhile
	LEFTFOLD_OUTAGE=full $(BIN)/pytest -q -m engine tests/engine/test_outage.py tests/engine/test_consumers.py -k outage -s

rejects: ## 1,000,000 records of which 1 % cannot be decoded and 2 % are late: counted, named, corrected, re-driven
	LEFTFOLD_REJECTS=full $(BIN)/pytest -q -m engine tests/engine/test_redrive.py -s

rebuilds: ## 20 promotes and 20 rollbacks while producers write and readers poll; deaths at every step of a rebuild
	LEFTFOLD_REBUILDS=full $(BIN)/pytest -q -m engine tests/engine/test_rebuild.py tests/engine/test_promote.py -s

rewritten: ## A log cut on all replicas and grown again past what was read, 20 times: refused by partition and offset
	LEFTFOLD_REWRITTEN=full $(BIN)/pytest -q -m engine tests/engine/test_rewritten.py -s

store-faults: ## Redis restarted from a dump, emptied and failed over to a lagging replica, 200 times, at each step of a batch
	LEFTFOLD_STORE_FAULTS=full $(BIN)/pytest -q -m engine tests/engine/test_store_faults.py -s

redis-cluster: ## 20 fail-overs of a Redis Cluster that lose acknowledged writes, slots that move under load, deaths and zombies
	LEFTFOLD_REDIS_CLUSTER=full $(BIN)/pytest -q -m engine tests/engine/test_redis_cluster.py tests/engine/test_view_on_cluster.py -s
	LEFTFOLD_CRASHES=full $(BIN)/pytest -q -m engine tests/engine/test_crashes.py tests/engine/test_zombies.py -k cluster -s

many-keys: ## 5,000,000 keys in one batch with a driver heap of 1 GiB
	LEFTFOLD_KEYS=full $(BIN)/pytest -q -m engine tests/engine/test_many_keys.py -s

poison: ## 10,000 unknown schema ids among 1,000,000 records; 1,000 keys of a megabyte with a heap of 1 GB
	$(BIN)/pytest -q -m engine tests/engine/test_poison.py -s

replay: ## Ten replays of 200,000 records, one of them killed; and a move to twelve partitions with ten kills of the copier
	LEFTFOLD_REPLAY=full $(BIN)/pytest -q -m engine tests/engine/test_replay.py -s

archive: ## The log's head deleted 20 times at random while history is read as one source of archive and log
	LEFTFOLD_ARCHIVE=full $(BIN)/pytest -q -m engine tests/engine/test_archive.py -s

point-in-time: ## Training sets against an oracle and DuckDB: 2,000,000 events, 100,000 labels, every rule of time
	LEFTFOLD_POINT_IN_TIME=full $(BIN)/pytest -q -m engine tests/engine/test_point_in_time.py -s

both-ways: ## Training sets, replays and comparisons of 500 generated projects, made by Arrow and by Spark; LEFTFOLD_BOTH_WAYS=N: N
	LEFTFOLD_BOTH_WAYS=$(or $(LEFTFOLD_BOTH_WAYS),500) $(BIN)/pytest -q -m engine tests/engine/test_both_ways.py -s

parity: ## What readers get online against training sets: 20,000 keys at one position, 10,000 reads of a live run
	LEFTFOLD_PARITY=full $(BIN)/pytest -q -m engine tests/engine/test_parity.py -s

secured: ## On TLS, SCRAM and ACLs: every right of the reference taken away once, every client refused in every way
	LEFTFOLD_SECURED=full $(BIN)/pytest -q -m engine tests/engine/test_secured.py -s

deliveries: ## Consumers that die 20 times at each step, 50 that are overtaken, 20 killed brokers: what is lost and doubled
	LEFTFOLD_DELIVERIES=full $(BIN)/pytest -q -m engine tests/engine/test_deliveries.py tests/engine/test_transactions.py -s

scoring: ## Scorers that die 20 times at each step: predictions that are lost or repeated
	LEFTFOLD_SCORING=full $(BIN)/pytest -q -m engine tests/engine/test_scoring.py -s

skew: ## At least 100,000 predictions over two promotes, killed executors, an emptied Redis, 40 falsified; LEFTFOLD_SKEW=N: at least N
	LEFTFOLD_SKEW=$(or $(LEFTFOLD_SKEW),full) $(BIN)/pytest -q -m engine tests/engine/test_skew.py -s

serving: ## The server killed 20 times under load, in each mode of its log: what is lost and told
	LEFTFOLD_SERVING=full $(BIN)/pytest -q -m engine tests/engine/test_serving.py -s

figures: ## AUC, log loss and PSI that Spark counts, of 200 made-up sets, against scikit-learn and numpy
	LEFTFOLD_QUALITY=full $(BIN)/pytest -q -m engine tests/engine/test_evaluation.py tests/engine/test_drift.py

outcomes: ## 1,000,000 predictions and events, joined in three ways, against DuckDB; ten killed appends; LEFTFOLD_OUTCOMES=N: N
	LEFTFOLD_OUTCOMES=$(or $(LEFTFOLD_OUTCOMES),full) $(BIN)/pytest -q -m engine tests/engine/test_outcomes.py -s

rebalances: ## 100 joins and leaves of a group under load; 1 to 8 processes on 6 partitions
	LEFTFOLD_REBALANCES=full $(BIN)/pytest -q -m engine tests/engine/test_rebalances.py -s

rideshare: ## 10,000 drivers for a minute, 2 % of positions sent twice, five kills of billing and one of a broker: every fare
	LEFTFOLD_RIDESHARE=full $(BIN)/pytest -q -m engine tests/engine/test_rideshare.py -k fare -s

nine-am: ## 500 cards are stolen in 20 runs at 1,000 payments/s: how many payments a thief completes before each way knows
	LEFTFOLD_NINE_AM=full $(BIN)/pytest -q -m engine tests/engine/test_nine_am.py -k thefts -s

recommender: ## Twice around the loop of the recommender, as its README says, with the waits of real clocks
	$(BIN)/pytest -q -m engine tests/engine/test_recommender.py -s

log-model: ## 500 random histories of three brokers, which die and are elected cleanly and uncleanly, judged by the model of the log
	LEFTFOLD_LOG_MODEL=full $(BIN)/pytest -q -m engine tests/engine/test_log_model.py -s

schedules: ## 1,000,000 crash schedules of a billing consumer in the model of the log, in two processes
	LEFTFOLD_SCHEDULES=full $(BIN)/pytest -q tests/unit/testing/test_schedules.py -k every_account -s

crds: ## Make the schemas that manifests are checked with once more, and compare (needs Java 21+, Maven, a network)
	$(BIN)/python -m tests.crds check

docs: ## The docs site in site/, and the check of its links, anchors, entries and search
	$(BIN)/python -c "import zensical, mkdocstrings_handlers.python" || $(BIN)/pip install --quiet -e '.[docs]'
	$(BIN)/python -m docs.website
	$(BIN)/pytest -q tests/docs/check_site.py

pictures: ## Draw the pictures of a terminal once more, from what the tutorial's test has printed
	$(BIN)/python -m docs.website.pictures

bench: ## Ratios against the bare engines
	$(BIN)/python -m bench producer --json
	$(BIN)/python -m bench read --json
	$(BIN)/python -m bench consumer --json
	$(BIN)/python -m bench view --json
	$(BIN)/python -m bench online --json
	$(BIN)/python -m bench scoring --json
	$(BIN)/python -m bench replay --json
