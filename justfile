# The one list of commands. Each line works when typed, too.

# Show this list.
default:
    @just --list

# Formatting, lints, all tests in their quick forms.
check: fmt lint test

# Formatting as rustfmt.toml says.
fmt:
    cargo fmt --all --check

# Clippy, warnings denied, with and without the account of communication.
lint:
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy -p foxton-sync --features account --all-targets -- -D warnings

# Every test in its quick form.
test:
    cargo test --workspace

# The account of communication, switched on.
account:
    cargo test -p foxton-sync --features account
    cargo test -p foxton-lock -p foxton -p foxton-lab --features foxton-lab/account --test it -- account:: contention:: critical_sections:: figures::

# Elided latches, the lock managers over them and what is told of them, on transactions that software stands in for; and
# with those switched off.
emulated:
    cargo test -p foxton-sync -p foxton-lock -p foxton-lab --features foxton-lab/emulated --test it -- elided:: contract:: scripts:: latches:: elision::
    cargo test -p foxton-sync -p foxton-lock -p foxton-lab --features foxton-lab/emulated --test oversubscribed --test stress
    FOXTON_HTM=off cargo test -p foxton-sync --features emulated --test it -- elided:: latch_contract::
    FOXTON_HTM=off cargo test -p foxton-sync --features emulated --test oversubscribed

# Races and failures at named points of the engine.
hooks:
    cargo test -p foxton-sync -p foxton-log -p foxton -p foxton-sim --features foxton-sim/hooks --test it -- hooks:: early:: idle:: cancelled:: points:: power:: --skip savepoints::

# Faults on purpose in the engine, each of which the checkers of histories must find.
planted:
    cargo test -p foxton-sim --features planted --test it planted -- --nocapture

# Ten million random transactions, replayed and searched for circles.
histories *args:
    cargo run --release -p foxton-sim --example histories -- {{args}}

# The models of every memory ordering, under loom.
model *args:
    LOOM_MAX_BRANCHES=50000 RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p foxton-sync -p foxton-lock -p foxton-log -p foxton-store --test models {{args}}
    LOOM_MAX_BRANCHES=50000 RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p foxton-store --lib models

# Long histories on every lock manager, in schedules drawn at random.
shuttle *args:
    RUSTFLAGS="--cfg shuttle" cargo test --release --target-dir target/shuttle -p foxton-lock --test 'shuttle_*' {{args}}

# The models of the lock protocols, under TLC: whole ones hold, broken ones are refuted.
spec *args:
    spec/check {{args}}

# That counting critical sections costs nothing where it is left out: three builds, by callgrind and by time.
uncounted *args:
    cargo run --release -p foxton-tidy --bin uncounted -- {{args}}

# Weakens each ordering in turn and wants a model to turn red.
weaken *args:
    cargo run --release -p foxton-tidy --bin weaken -- {{args}}

# What threads share, under ThreadSanitizer with an instrumented standard library.
tsan:
    .ci/tsan

# The longer stress tests: those marked `ignored`, in release.
stress:
    cargo test --release --workspace -- --ignored --nocapture

# For a machine with RTM: tests with it and without, sums and chains behind every latch, most of an hour of every lock manager
# over each latch that elides, all figures of document 001 with spread, and once more with shares of time. Some two hours.
elision out="results/elision" seconds="2800":
    cargo test --release -p foxton-sync -p foxton-lock --test it -- elided:: contract:: scripts::
    cargo test --release -p foxton-sync -p foxton-lock --test oversubscribed --test stress
    cargo test --release -p foxton-sync --lib -- htm elided
    cargo test --release -p foxton-lab --test it -- latches:: elision::
    FOXTON_HTM=off cargo test --release -p foxton-sync -p foxton-lock --test it -- elided:: contract:: scripts::
    FOXTON_HTM=off cargo test --release -p foxton-sync -p foxton-lock --test oversubscribed --test stress
    FOXTON_HTM=off cargo test --release -p foxton-sync -p foxton-lab --lib
    FOXTON_HTM=off cargo test --release -p foxton-lab --test it -- latches:: elision::
    cargo run --release -- bench hashmap --buckets 1000 --global --taken --seconds 1 --reps 10 --out {{out}}/hashmap
    cargo run --release -- bench bank --accounts 100 --taken --seconds 1 --reps 10 --out {{out}}/bank
    cargo run --release -- bench list --taken --seconds 1 --reps 10 --out {{out}}/list
    cargo run --release -- bench counter --taken --seconds 1 --reps 10 --out {{out}}/counter
    cargo run --release -p foxton-lock --example stress -- --seconds {{seconds}} --latch elided:hle,elided:rtm,elided:retry100,elided:cooldown,elided:adaptive
    cargo run --release -- figure 001 --reps 15 --out {{out}}/figures
    cargo run --release --features account -- figure 001 --reps 5 --out {{out}}/timed

# Kill-and-restart cycles over a TPC-B-like load.
kill cycles="1000":
    cargo run --release -p foxton-sim --example kill -- --cycles {{cycles}}

# Kills at each system call, and calls that fail, with strace.
calls most="40":
    cargo run --release -p foxton-sim --example calls -- --most {{most}}

# A fuzzer of what reads bytes: log, checkpoint, restart, backup, page_record or picture. Needs nightly and cargo-fuzz.
fuzz target="restart" seconds="60":
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}} -max_len=4096

# The same harm to files of Foxton, redb, LMDB and SQLite. Builds the last two from their sources, with a C compiler.
peers *args="flips":
    cargo run --release --manifest-path peers/Cargo.toml -- {{args}}

# The same transactions on other engines, and how many a second: half an hour at most. First, once: peers/install.sh.
peers-speed *args:
    cargo run --release --manifest-path peers/Cargo.toml --features native -- speed {{args}}

# Transactions of several statements here and on PostgreSQL and MariaDB, started for it. First, once: peers/install.sh servers.
peers-served *args:
    cargo run --release --manifest-path peers/Cargo.toml --features servers -- served {{args}}

# The benchmark; arguments go to `foxton bench`.
bench *args="txbench":
    cargo run --release -- bench {{args}}

# Every figure of the documents in one report, in half an hour. Those that count are made first, by a program that does.
reproduce out="results/reproduce":
    cargo run --release --features account -- reproduce --only 002-fig3,002-fig11 --out {{out}}
    cargo run --release -- reproduce --out {{out}}

# The published numbers, rendered from docs/results: RESULTS.md there and the README's table.
results *args:
    cargo run -- results render {{args}}

# What the parts cost, alone: latches, locks, the index, the log.
parts:
    cargo bench --workspace

# The documentation of every crate.
doc:
    cargo doc --workspace --no-deps --open

# House rules, and what is long.
tidy:
    cargo run -p foxton-tidy --bin tidy

# What continuous integration runs.
ci:
    .ci/run
