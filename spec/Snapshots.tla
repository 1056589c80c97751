------------------------------ MODULE Snapshots ------------------------------
(* Reads at snapshots: `crates/store/src/memory/version.rs` with `crates/foxton/src/engine/snapshots.rs`. One row;
   writers that lock it, and commit or roll back; readers that register a snapshot and read; a collector. The
   front of the log is the number of commits. A reader's store to its place goes through a buffer, which empties at
   any moment; whatever reads, changes and writes one word empties it, and so does the heavy fence.

   Left out: deleted rows, log space (the log refuses nothing), ending a snapshot to free memory. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Writers, Readers,
    Rounds,     \* transactions of each writer
    Reads,      \* snapshots of each reader
    Sweeps,     \* passes of the collector
    Broken      \* the step that is left out, or "none"

First == <<0, 0>>
None == <<0, 1>>
Nobody == 0
Free == -1      \* no snapshot in a place
Versions == {First} \cup (Writers \X (1..Rounds))
At(c) == <<"at", c>>
Of(w, g) == <<"of", w, g>>
Max(a, b) == IF a > b THEN a ELSE b

VARIABLES
    front,              \* of the log
    head, begin, older, \* the chain of the row
    gone,               \* versions that have left the chain: their links are marked
    history,            \* what was committed: LSN -> version
    gen, slot,          \* of each writer: generation and state of its commit slot
    stage, line,        \* the stage and the watermark
    closings,           \* times that the stage was about to be off
    place, buffer,      \* of each reader: its snapshot, and the store that is under way
    lock,               \* the writer that has the row
    wpc, round, early, lsn, keeps,      \* of each writer
    rpc, snapshot, known, at, seen, word, left, \* of each reader
    cpc, active, mark, sweeps, closes   \* of the collector

row == <<head, begin, older, gone, history>>
slots == <<gen, slot>>
state == <<stage, line, closings>>
places == <<place, buffer>>
writer == <<lock, wpc, round, early, lsn, keeps>>
reader == <<rpc, snapshot, known, at, seen, word, left>>
collector == <<cpc, active, mark, sweeps, closes>>
vars == <<front, row, slots, state, places, writer, reader, collector>>

Init ==
    /\ front = 0 /\ head = First /\ gone = {} /\ history = TLCEval([c \in {0} |-> First])
    /\ begin = TLCEval([v \in Versions |-> At(0)]) /\ older = TLCEval([v \in Versions |-> None])
    /\ gen = TLCEval([w \in Writers |-> 0]) /\ slot = TLCEval([w \in Writers |-> <<"active">>])
    /\ stage = "off" /\ line = 0 /\ closings = 0
    /\ place = TLCEval([r \in Readers |-> Free]) /\ buffer = TLCEval([r \in Readers |-> <<>>])
    /\ lock = Nobody
    /\ wpc = TLCEval([w \in Writers |-> "idle"]) /\ round = TLCEval([w \in Writers |-> 0])
    /\ early = TLCEval([w \in Writers |-> 0]) /\ lsn = TLCEval([w \in Writers |-> 0])
    /\ keeps = TLCEval([w \in Writers |-> FALSE])
    /\ rpc = TLCEval([r \in Readers |-> "idle"]) /\ snapshot = TLCEval([r \in Readers |-> 0])
    /\ known = TLCEval([r \in Readers |-> 0])
    /\ at = TLCEval([r \in Readers |-> None]) /\ seen = TLCEval([r \in Readers |-> <<>>])
    /\ word = TLCEval([r \in Readers |-> <<>>]) /\ left = TLCEval([r \in Readers |-> Reads])
    /\ cpc = "idle" /\ active = {} /\ mark = 0 /\ sweeps = Sweeps /\ closes = FALSE

(* ---- a writer ---- *)

Mine(w) == <<w, round[w]>>
W(w, from, to) == wpc[w] = from /\ wpc' = [wpc EXCEPT ![w] = to]

Write(w) ==
    /\ W(w, "idle", "written") /\ round[w] < Rounds /\ lock = Nobody
    /\ lock' = w
    /\ round' = [round EXCEPT ![w] = @ + 1]
    /\ LET v == <<w, round[w] + 1>> IN
        /\ begin' = [begin EXCEPT ![v] = Of(w, gen[w])]
        /\ older' = [older EXCEPT ![v] = head]
        /\ head' = v
    /\ UNCHANGED <<front, gone, history, slots, state, places, early, lsn, keeps, reader, collector>>

RollBack(w) ==
    /\ W(w, "written", "undone")
    /\ head' = older[Mine(w)]
    /\ gone' = gone \cup {Mine(w)}
    /\ UNCHANGED <<front, begin, older, history, slots, state, places, lock, round, early, lsn, keeps, reader, collector>>

LoadFront(w) ==
    /\ IF Broken = "committing after the place" THEN W(w, "written", "reserve") ELSE W(w, "written", "commit")
    /\ early' = [early EXCEPT ![w] = front]
    /\ keeps' = [keeps EXCEPT ![w] = stage # "off"]     \* counts where the stage is loaded too early
    /\ UNCHANGED <<front, row, slots, state, places, lock, round, lsn, reader, collector>>

Committing(w) ==
    /\ IF Broken = "committing after the place" THEN W(w, "commit", "know") ELSE W(w, "commit", "reserve")
    /\ slot' = [slot EXCEPT ![w] = <<"committing", early[w]>>]
    /\ UNCHANGED <<front, row, gen, state, places, lock, round, early, lsn, keeps, reader, collector>>

Reserve(w) ==
    /\ IF Broken = "committing after the place" THEN W(w, "reserve", "commit") ELSE W(w, "reserve", "know")
    /\ front' = front + 1
    /\ lsn' = [lsn EXCEPT ![w] = front + 1]
    /\ history' = [c \in (DOMAIN history) \cup {front + 1} |-> IF c = front + 1 THEN Mine(w) ELSE history[c]]
    /\ UNCHANGED <<head, begin, older, gone, slots, state, places, lock, round, early, keeps, reader, collector>>

Know(w) ==
    /\ W(w, "know", "ask")
    /\ slot' = [slot EXCEPT ![w] = <<"committed", lsn[w]>>]
    /\ UNCHANGED <<front, row, gen, state, places, lock, round, early, lsn, keeps, reader, collector>>

AskStage(w) ==
    LET is_kept == CASE Broken = "the stage is loaded before the LSN is known" -> keeps[w]
                     [] Broken = "closing is off to a commit" -> stage \in {"starting", "on"}
                     [] OTHER -> stage # "off"
    IN
    /\ W(w, "ask", IF ~is_kept THEN "undone" ELSE IF Broken = "stamped after the generation" THEN "undone" ELSE "stamp")
    /\ keeps' = [keeps EXCEPT ![w] = is_kept]
    /\ UNCHANGED <<front, row, slots, state, places, lock, round, early, lsn, reader, collector>>

Stamp(w) ==
    /\ W(w, "stamp", IF Broken = "stamped after the generation" THEN "unlock" ELSE "undone")
    /\ begin' = [begin EXCEPT ![Mine(w)] = At(lsn[w])]
    /\ UNCHANGED <<front, head, older, gone, history, slots, state, places, lock, round, early, lsn, keeps, reader, collector>>

(* The generation ends, and then the slot is active again. *)
EndGeneration(w) ==
    /\ W(w, "undone", "active")
    /\ gen' = [gen EXCEPT ![w] = @ + 1]
    /\ UNCHANGED <<front, row, slot, state, places, lock, round, early, lsn, keeps, reader, collector>>

Active(w) ==
    LET is_over == slot[w][1] = "committed" IN
    /\ W(w, "active", IF ~is_over THEN "unlock" ELSE IF ~keeps[w] THEN "retire"
                      ELSE IF Broken = "stamped after the generation" THEN "stamp" ELSE "unlock")
    /\ slot' = [slot EXCEPT ![w] = <<"active">>]
    /\ UNCHANGED <<front, row, gen, state, places, lock, round, early, lsn, keeps, reader, collector>>

(* What a commit replaced while the stage was off. *)
Retire(w) ==
    LET old == older[Mine(w)] IN
    /\ W(w, "retire", "unlock")
    /\ gone' = IF old = None THEN gone ELSE gone \cup {old}
    /\ older' = [older EXCEPT ![Mine(w)] = IF old = None THEN None ELSE older[old]]
    /\ UNCHANGED <<front, head, begin, history, slots, state, places, lock, round, early, lsn, keeps, reader, collector>>

Unlock(w) ==
    /\ W(w, "unlock", "idle")
    /\ lock' = Nobody
    /\ UNCHANGED <<front, row, slots, state, places, round, early, lsn, keeps, reader, collector>>

(* ---- a reader ---- *)

R(r, from, to) == rpc[r] = from /\ rpc' = [rpc EXCEPT ![r] = to]
Settled == [r \in Readers |-> IF buffer[r] = <<>> THEN place[r] ELSE buffer[r][1]]
HeavyFence == place' = Settled /\ buffer' = [r \in Readers |-> <<>>]
KeepPlaces == UNCHANGED places

Empty(r) ==
    /\ buffer[r] # <<>>
    /\ place' = [place EXCEPT ![r] = buffer[r][1]]
    /\ buffer' = [buffer EXCEPT ![r] = <<>>]
    /\ UNCHANGED <<front, row, slots, state, writer, reader, collector>>

LoadClosings(r) ==
    /\ left[r] > 0
    /\ R(r, "idle", "stage")
    /\ known' = [known EXCEPT ![r] = closings]
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, at, seen, word, left, collector>>

Begin(r) ==
    /\ IF stage = "on" THEN R(r, "stage", "take") /\ UNCHANGED state /\ KeepPlaces
       ELSE IF stage = "starting" THEN R(r, "stage", "starting") /\ UNCHANGED state /\ HeavyFence
       ELSE R(r, "stage", "starter") /\ stage' = "starting" /\ UNCHANGED <<line, closings>> /\ KeepPlaces
    /\ UNCHANGED <<front, row, slots, writer, snapshot, known, at, seen, word, left, collector>>

Starter(r) ==
    /\ R(r, "starter", "switch")
    /\ HeavyFence
    /\ UNCHANGED <<front, row, slots, state, writer, snapshot, known, at, seen, word, left, collector>>

(* The exchange fails if the stage has changed. *)
Switch(r) ==
    /\ \/ R(r, "starting", "take")
       \/ R(r, "switch", "idle")
    /\ stage' = IF stage = "starting" THEN "on" ELSE stage
    /\ UNCHANGED <<front, row, slots, line, closings, places, writer, snapshot, known, at, seen, word, left, collector>>

Take(r) ==
    /\ R(r, "take", "store")
    /\ snapshot' = [snapshot EXCEPT ![r] = front]
    /\ UNCHANGED <<front, row, slots, state, places, writer, known, at, seen, word, left, collector>>

Store(r) ==
    /\ R(r, "store", "look")
    /\ buffer' = [buffer EXCEPT ![r] = <<snapshot[r]>>]
    /\ place' = [place EXCEPT ![r] = IF buffer[r] = <<>> THEN @ ELSE buffer[r][1]]
    /\ UNCHANGED <<front, row, slots, state, writer, snapshot, known, at, seen, word, left, collector>>

Look(r) ==
    LET is_same == known[r] = closings \/ Broken = "the closings are not compared"
        is_kept == stage \in {"starting", "on"} /\ snapshot[r] >= line /\ is_same
    IN
    /\ IF is_kept \/ Broken = "no second look" THEN R(r, "look", "first") ELSE R(r, "look", "give up")
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, seen, word, left, collector>>

Leave(r) ==
    /\ \/ R(r, "give up", "idle") /\ UNCHANGED <<left, seen>>
       \/ /\ R(r, "done", "idle")
          /\ left' = [left EXCEPT ![r] = @ - 1]
          /\ seen' = [seen EXCEPT ![r] = <<>>]
    /\ buffer' = [buffer EXCEPT ![r] = <<Free>>]
    /\ place' = [place EXCEPT ![r] = IF buffer[r] = <<>> THEN @ ELSE buffer[r][1]]
    /\ UNCHANGED <<front, row, slots, state, writer, snapshot, known, at, word, collector>>

LoadHead(r) ==
    /\ R(r, "first", "begin")
    /\ at' = [at EXCEPT ![r] = head]
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, seen, word, left, collector>>

See(r, v) == seen' = [seen EXCEPT ![r] = Append(@, v)]

(* The begin timestamp of the version. *)
LoadBegin(r) ==
    LET b == begin[at[r]] IN
    /\ rpc[r] = "begin"
    /\ IF at[r] = None THEN See(r, None) /\ R(r, "begin", "done") /\ UNCHANGED word
       ELSE IF b[1] = "of" THEN
            /\ word' = [word EXCEPT ![r] = b]
            /\ R(r, "begin", "generation") /\ UNCHANGED seen
       ELSE IF b[2] <= snapshot[r] THEN See(r, at[r]) /\ R(r, "begin", "done") /\ UNCHANGED word
       ELSE R(r, "begin", "older") /\ UNCHANGED <<seen, word>>
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, left, collector>>

Generation(r) ==
    /\ R(r, "generation", IF gen[word[r][2]] = word[r][3] THEN "state" ELSE "over")
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, seen, word, left, collector>>

LoadState(r) ==
    LET w == word[r][2] IN
    /\ R(r, "state", IF Broken = "the generation is not read again" THEN "decide" ELSE "again")
    /\ word' = [word EXCEPT ![r] = <<"of", w, @[3], slot[w]>>]
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, seen, left, collector>>

Again(r) ==
    /\ R(r, "again", IF gen[word[r][2]] = word[r][3] THEN "decide" ELSE "over")
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, seen, word, left, collector>>

Decide(r) ==
    LET s == word[r][4] IN
    /\ rpc[r] = "decide"
    /\ IF s[1] = "active" THEN R(r, "decide", "older") /\ UNCHANGED seen
       ELSE IF s[1] = "committing" THEN
            /\ R(r, "decide", IF snapshot[r] <= s[2] \/ Broken = "unresolved is invisible" THEN "older" ELSE "begin")
            /\ UNCHANGED seen
       ELSE IF s[2] <= snapshot[r] THEN See(r, at[r]) /\ R(r, "decide", "done")
       ELSE R(r, "decide", "older") /\ UNCHANGED seen
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, word, left, collector>>

(* The generation is over: the version is stamped, or undone, or older than every snapshot. *)
Over(r) ==
    LET b == begin[at[r]] IN
    /\ rpc[r] = "over"
    /\ IF b[1] = "at" THEN R(r, "over", "begin") /\ UNCHANGED seen
       ELSE IF at[r] \in gone /\ Broken # "a version that was undone counts" THEN R(r, "over", "first") /\ UNCHANGED seen
       ELSE See(r, at[r]) /\ R(r, "over", "done")
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, at, word, left, collector>>

(* A link that is marked: the walk begins again. *)
Older(r) ==
    /\ IF at[r] \in gone THEN R(r, "older", "first") /\ UNCHANGED at
       ELSE R(r, "older", "begin") /\ at' = [at EXCEPT ![r] = older[at[r]]]
    /\ UNCHANGED <<front, row, slots, state, places, writer, snapshot, known, seen, word, left, collector>>

(* ---- the collector ---- *)

C(from, to) == cpc = from /\ cpc' = to
PlacesFirst == Broken = "the watermark is stored after the places are read"

Sweep ==
    /\ C("idle", IF PlacesFirst THEN "read" ELSE "raise") /\ sweeps > 0
    /\ sweeps' = sweeps - 1
    /\ active' = {} /\ mark' = front
    /\ \/ closes' = FALSE /\ UNCHANGED stage
       \/ stage = "on" /\ stage' = "closing" /\ closes' = TRUE
    /\ UNCHANGED <<front, row, slots, line, closings, places, writer, reader>>

(* It moves to the front, which was loaded before. *)
Raise ==
    /\ C("raise", IF PlacesFirst THEN "prune" ELSE "fence")
    /\ line' = Max(line, mark)
    /\ mark' = Max(line, mark)
    /\ UNCHANGED <<front, row, slots, stage, closings, places, writer, reader, active, sweeps, closes>>

Fence ==
    /\ C("fence", "read")
    /\ IF Broken = "no heavy fence" THEN KeepPlaces ELSE HeavyFence
    /\ UNCHANGED <<front, row, slots, state, writer, reader, active, mark, sweeps, closes>>

ReadPlaces ==
    /\ C("read", IF PlacesFirst THEN "raise" ELSE "prune")
    /\ active' = {place[r] : r \in Readers} \ {Free}
    /\ UNCHANGED <<front, row, slots, state, places, writer, reader, mark, sweeps, closes>>

(* Where a version begins that is not the newest. *)
Began(v) == IF begin[v][1] = "at" THEN begin[v][2] ELSE 0
Newer(v) == {u \in Versions : u \notin gone /\ older[u] = v}
IsNeeded(v, end) ==
    \/ end > mark
    \/ \E s \in active : s < end /\ IF Broken = "less for at most" THEN Began(v) < s ELSE Began(v) <= s

Prunable(v) ==
    /\ v \notin gone /\ v # head
    /\ \E u \in Newer(v) : begin[u][1] = "at" /\ ~IsNeeded(v, begin[u][2])

Prune ==
    /\ cpc = "prune"
    /\ IF \E v \in Versions : Prunable(v) THEN
            \E v \in Versions :
                /\ Prunable(v)
                /\ gone' = gone \cup {v}
                /\ older' = [u \in Versions |-> IF u \notin gone /\ older[u] = v THEN older[v] ELSE older[u]]
                /\ UNCHANGED cpc
       ELSE C("prune", IF ~closes THEN "idle" ELSE IF active = {} THEN "count" ELSE "close") /\ UNCHANGED <<gone, older>>
    /\ UNCHANGED <<front, head, begin, history, slots, state, places, writer, reader, active, mark, sweeps, closes>>

Count ==
    /\ C("count", "close")
    /\ closings' = closings + 1
    /\ UNCHANGED <<front, row, slots, stage, line, places, writer, reader, active, mark, sweeps, closes>>

(* The exchange fails if a reader has come. *)
Close ==
    /\ C("close", "idle")
    /\ stage' = IF stage # "closing" THEN stage ELSE IF active = {} THEN "off" ELSE "on"
    /\ UNCHANGED <<front, row, slots, line, closings, places, writer, reader, active, mark, sweeps, closes>>

Done ==
    /\ \A w \in Writers : wpc[w] = "idle" /\ round[w] = Rounds
    /\ \A r \in Readers : rpc[r] = "idle" /\ left[r] = 0 /\ buffer[r] = <<>>
    /\ cpc = "idle" /\ sweeps = 0
    /\ UNCHANGED vars

Next ==
    \/ \E w \in Writers :
        \/ Write(w) \/ RollBack(w) \/ LoadFront(w) \/ Committing(w) \/ Reserve(w) \/ Know(w) \/ AskStage(w)
        \/ Stamp(w) \/ EndGeneration(w) \/ Active(w) \/ Retire(w) \/ Unlock(w)
    \/ \E r \in Readers :
        \/ Empty(r) \/ LoadClosings(r) \/ Begin(r) \/ Starter(r) \/ Switch(r) \/ Take(r) \/ Store(r) \/ Look(r) \/ Leave(r)
        \/ LoadHead(r) \/ LoadBegin(r) \/ Generation(r) \/ LoadState(r) \/ Again(r) \/ Decide(r) \/ Over(r) \/ Older(r)
    \/ Sweep \/ Raise \/ Fence \/ ReadPlaces \/ Prune \/ Count \/ Close
    \/ Done

Spec == Init /\ [][Next]_vars

AnyOrder == Permutations(Writers) \cup Permutations(Readers)

(* ---- what must hold ---- *)

RECURSIVE Last(_)
Last(s) == IF s \in DOMAIN history THEN history[s] ELSE Last(s - 1)

(* A reader sees exactly what was committed at or below its snapshot. *)
RightRow == \A r \in Readers : \A i \in 1..Len(seen[r]) : seen[r][i] = Last(snapshot[r])

(* Nothing that has left the chain is in it. *)
RECURSIVE Chain(_)
Chain(v) == IF v = None THEN {} ELSE {v} \cup Chain(older[v])
Linked == Chain(head) \cap gone = {}

(* I1 of `snapshots.rs`: nobody is registered for good while the stage is off. *)
OffMeansNobody == stage = "off" => \A r \in Readers : rpc[r] \notin {"first", "begin", "done"}
=============================================================================
