------------------------------- MODULE Staged -------------------------------
(* The acquire and release of the lock manager `staged`: chains that grow at the front (`stack`), a line
   of those who wait behind a latch (`manager`). One chain, several names in it. Steps are named as on the
   page of `crates/lock/src/managers/staged/mod.rs`: a1..a8, r1..r4, w1..w4; S1..S7 are the points of the
   document. Every action below is one atomic step on shared memory.

   What is left out: memory reclamation (a request is never used twice here), the deadlock detector, and
   memory orders weaker than sequential consistency, which the models under loom have. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Threads,
    Names,
    Rounds,     \* locks that each thread takes, one after the other
    Converts,   \* whether a thread that holds S may ask for X
    Leaves,     \* whether a wait may end by a deadline, and a request may refuse to wait
    Cleans,     \* whether who releases may clean the chain
    Broken      \* the step that is left out, or "none"

None == <<0, 0>>
Nobody == 0
Modes == {"S", "X"}
Conflicts(m) == IF m = "X" THEN Modes ELSE {"X"}
Meet(a, b) == a \cap b # {}

VARIABLES
    word,       \* top, live, granted, awaited, cleaning: one word, changed by exchanges
    below,      \* request -> the next older one
    marks,      \* requests whose link is frozen, and those that were given back
    state,      \* request -> "new", "live", "obsolete"; "taken": gone without a mark
    what,       \* request -> owner, name, mode
    line,       \* name -> those who wait, first come first
    latch,      \* who has the latch of the line
    under,      \* what the holder of the latch works with
    pc, mine, round, woken

vars == <<word, below, marks, state, what, line, latch, under, pc, mine, round, woken>>

Ids == Threads \X (1..(2 * Rounds))

RECURSIVE Chain(_)
Chain(top) == IF top = None THEN {} ELSE {top} \cup Chain(below[top])

LiveOf(name, top) == {r \in Chain(top) : state[r] = "live" /\ what[r].name = name}
Unmarked(name, top) == {r \in Chain(top) : state[r] \in {"live", "taken"} /\ what[r].name = name}
InTheWay(holders, owner, mode) ==
    \E r \in holders : what[r].owner # owner /\ what[r].mode \in Conflicts(mode)

Awaited(lines) == {w.mode : w \in UNION {{lines[n][i] : i \in 1..Len(lines[n])} : n \in Names}}

(* The word with request r on top; a conversion takes the place of what it replaces. *)
Pushed(w, r, mode, replaced) ==
    [w EXCEPT !.top = r,
              !.live = IF replaced = None THEN @ + 1 ELSE @,
              !.granted = @ \cup {mode}]
Emptied(w) ==
    [w EXCEPT !.top = None, !.live = 0, !.granted = {},
              !.awaited = IF Broken = "emptying forgets who waits" THEN {} ELSE @,
              !.cleaning = FALSE]
Released(w) ==
    IF w.live = 1 /\ ~w.cleaning THEN Emptied(w) ELSE [w EXCEPT !.live = @ - 1]

Empty == [top |-> None, live |-> 0, granted |-> {}, awaited |-> {}, cleaning |-> FALSE]
Nothing == [r |-> None, old |-> None, patient |-> TRUE, seen |-> Empty]
NoWork == [name |-> 0, then |-> "idle"]

Init ==
    /\ word = Empty
    /\ below = TLCEval([r \in Ids |-> None])
    /\ marks = [frozen |-> {}, gone |-> {}]
    /\ state = TLCEval([r \in Ids |-> "new"])
    /\ what = TLCEval([r \in Ids |-> [owner |-> Nobody, name |-> 0, mode |-> "none"]])
    /\ line = TLCEval([n \in Names |-> <<>>])
    /\ latch = Nobody
    /\ under = NoWork
    /\ pc = TLCEval([t \in Threads |-> "idle"])
    /\ mine = TLCEval([t \in Threads |-> Nothing])
    /\ round = TLCEval([t \in Threads |-> 0])
    /\ woken = TLCEval([t \in Threads |-> FALSE])

Go(t, to) == pc' = [pc EXCEPT ![t] = to]
Set(t, value) == mine' = [mine EXCEPT ![t] = value]

(* ---- asking ---- *)

Ask(t) ==
    /\ pc[t] = "idle" /\ round[t] < Rounds
    /\ \E name \in Names, mode \in Modes, patient \in (IF Leaves THEN BOOLEAN ELSE {TRUE}) :
        LET r == <<t, 2 * round[t] + 1>> IN
        /\ what' = [what EXCEPT ![r] = [owner |-> t, name |-> name, mode |-> mode]]
        /\ Set(t, [r |-> r, old |-> None, patient |-> patient, seen |-> Empty])
    /\ round' = [round EXCEPT ![t] = @ + 1]
    /\ Go(t, "a1")
    /\ UNCHANGED <<word, below, marks, state, line, latch, under, woken>>

Convert(t) ==
    LET old == mine[t].r  r == <<t, 2 * round[t]>> IN
    /\ pc[t] = "hold" /\ Converts /\ what[old].mode = "S" /\ old # r
    /\ \E patient \in (IF Leaves THEN BOOLEAN ELSE {TRUE}) :
        Set(t, [r |-> r, old |-> old, patient |-> patient, seen |-> Empty])
    /\ what' = [what EXCEPT ![r] = [what[old] EXCEPT !.mode = "X"]]
    /\ Go(t, "a1")
    /\ UNCHANGED <<word, below, marks, state, line, latch, under, round, woken>>

ModeOf(t) == what[mine[t].r].mode
NameOf(t) == what[mine[t].r].name
AwaitedSeen(w) == IF Broken = "who comes ignores who waits" THEN {} ELSE w.awaited

(* The exchange that puts t's request into the chain (S1). *)
Put(t) ==
    /\ word' = Pushed(word, mine[t].r, ModeOf(t), mine[t].old)
    /\ below' = [below EXCEPT ![mine[t].r] = word.top]
    /\ UNCHANGED marks
    /\ state' = [state EXCEPT ![mine[t].r] = "live"]
    /\ Go(t, IF mine[t].old = None THEN "hold" ELSE "finish")

(* a1 to a3: an exchange that succeeds decides on the word that it replaces. *)
Try(t) ==
    LET against == Conflicts(ModeOf(t))
        obstructed ==
            \/ Meet(AwaitedSeen(word), against)
            \/ Meet(word.granted, against) /\ ~(mine[t].old # None /\ word.live = 1)
    IN
    /\ pc[t] = "a1"
    /\ IF obstructed THEN Go(t, "a4") /\ UNCHANGED <<word, below, marks, state>> ELSE Put(t)
    /\ UNCHANGED <<what, line, latch, under, mine, round, woken>>

(* a4, in three: load, walk, exchange. A state only ever goes from live to obsolete: whatever the walk
   finds out of the way is so when it ends, and whoever it finds in the way was so when it began. *)
Look(t) ==
    /\ pc[t] = "a4"
    /\ Set(t, [mine[t] EXCEPT !.seen = word])
    /\ Go(t, "a4 walk")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, under, round, woken>>

Walk(t) ==
    LET seen == mine[t].seen IN
    /\ pc[t] = "a4 walk"
    /\ Go(t, IF \/ Meet(AwaitedSeen(seen), Conflicts(ModeOf(t)))
                \/ InTheWay(Unmarked(NameOf(t), seen.top), t, ModeOf(t))
             THEN "a5" ELSE "a4 put")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, under, mine, round, woken>>

Swap(t) ==
    /\ pc[t] = "a4 put"
    /\ \/ /\ word = mine[t].seen \/ Broken = "the exchange does not compare"
          /\ Put(t)
       \/ /\ word # mine[t].seen
          /\ pc' \in {[pc EXCEPT ![t] = "a4"], [pc EXCEPT ![t] = "a5"]}
          /\ UNCHANGED <<word, below, marks, state>>
    /\ mine' = [mine EXCEPT ![t].seen = Empty]
    /\ UNCHANGED <<what, line, latch, under, round, woken>>

(* After a conversion is in, what it replaces becomes obsolete. *)
Finish(t) ==
    /\ pc[t] = "finish"
    /\ state' = [state EXCEPT ![mine[t].old] = "obsolete"]
    /\ Set(t, [mine[t] EXCEPT !.old = None])
    /\ Go(t, "hold")
    /\ UNCHANGED <<word, below, marks, what, line, latch, under, round, woken>>

(* ---- under the latch ---- *)

Latch(t) ==
    /\ pc[t] \in {"a5", "r4", "leave"} /\ latch = Nobody
    /\ IF pc[t] = "leave" /\ woken[t]
       THEN Go(t, "sleep") /\ UNCHANGED <<latch, under>>      \* granted meanwhile
       ELSE /\ latch' = t
            /\ under' = [name |-> NameOf(t), then |-> IF pc[t] = "r4" THEN "idle" ELSE "refused"]
            /\ Go(t, CASE pc[t] = "a5" -> "a5 announce" [] pc[t] = "r4" -> "w1" [] OTHER -> "leave line")
    /\ mine' = [mine EXCEPT ![t].seen = Empty]
    /\ UNCHANGED <<word, below, marks, state, what, line, round, woken>>

(* S2. Without it, only who stands in the line is announced. *)
Announce(t) ==
    /\ pc[t] = "a5 announce"
    /\ word' = IF Broken = "no announcement" THEN word ELSE [word EXCEPT !.awaited = @ \cup {ModeOf(t)}]
    /\ Go(t, "a6")
    /\ UNCHANGED <<below, marks, state, what, line, latch, under, mine, round, woken>>

(* The walk of a6 and w1 (S3, S4): who is live when it begins may be found; who is live when it ends is. *)
Load(t) ==
    /\ pc[t] \in {"a6", "w1"} /\ latch = t
    /\ under' = [name |-> under.name, then |-> under.then,
                 found |-> LiveOf(under.name, word.top), at |-> 1, ahead |-> {}]
    /\ Go(t, IF pc[t] = "a6" THEN "a6 decide" ELSE "w1 walk")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, mine, round, woken>>

Seen == {h \in SUBSET under.found : {r \in under.found : state[r] = "live"} \subseteq h}

IsConversion(w) == w.old # None
Behind(l, w) ==     \* where w comes to stand
    IF IsConversion(w) THEN Cardinality({i \in 1..Len(l) : IsConversion(l[i])}) ELSE Len(l)
Enqueued(l, w) == SubSeq(l, 1, Behind(l, w)) \o <<w>> \o SubSeq(l, Behind(l, w) + 1, Len(l))

Decide(t) ==
    LET w == [owner |-> t, mode |-> ModeOf(t), r |-> mine[t].r, old |-> mine[t].old]
        l == line[under.name]
        ahead == {l[i].mode : i \in 1..Behind(l, w)}
    IN
    /\ pc[t] = "a6 decide"
    /\ \E holders \in Seen :
        LET blocked == Meet(ahead, Conflicts(w.mode)) \/ InTheWay(holders, t, w.mode) IN
        IF ~blocked THEN
            \* w3 for itself
            /\ word' = [Pushed(word, w.r, w.mode, w.old) EXCEPT !.awaited = Awaited(line)]
            /\ below' = [below EXCEPT ![w.r] = word.top]
            /\ UNCHANGED marks
            /\ state' = [state EXCEPT ![w.r] = "live"]
            /\ Go(t, IF w.old = None THEN "hold" ELSE "finish")
            /\ latch' = Nobody /\ under' = NoWork
            /\ UNCHANGED line
        ELSE IF mine[t].patient THEN
            /\ line' = [line EXCEPT ![under.name] = Enqueued(@, w)]
            /\ word' = IF Broken = "no announcement" THEN [word EXCEPT !.awaited = Awaited(line')] ELSE word
            /\ under' = [name |-> under.name, then |-> "sleep"]
            /\ Go(t, IF Broken = "no announcement" THEN "w0" ELSE "w1")
            /\ UNCHANGED <<below, marks, state, latch>>
        ELSE
            /\ word' = [word EXCEPT !.awaited = Awaited(line)]
            /\ under' = [name |-> under.name, then |-> "refused"]
            /\ Go(t, "w1")
            /\ UNCHANGED <<below, marks, state, line, latch>>
    /\ UNCHANGED <<what, mine, round, woken>>

(* Only in the broken form: who did not announce looks no second time. *)
DropAtOnce(t) ==
    /\ pc[t] = "w0"
    /\ latch' = Nobody /\ under' = NoWork /\ Go(t, "sleep")
    /\ UNCHANGED <<word, below, marks, state, what, line, mine, round, woken>>

FixHolders(t) ==
    /\ pc[t] = "w1 walk"
    /\ \E holders \in Seen : under' = [under EXCEPT !.found = holders]
    /\ Go(t, "w2")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, mine, round, woken>>

NextWaiter(t) ==
    LET l == line[under.name] IN
    /\ pc[t] = "w2"
    /\ IF under.at > Len(l) THEN
            /\ latch' = Nobody /\ under' = NoWork
            /\ Go(t, under.then)
            /\ mine' = IF under.then = "idle" THEN [mine EXCEPT ![t] = Nothing] ELSE mine
            /\ UNCHANGED line
       ELSE LET w == l[under.at] IN
            IF Meet(under.ahead, Conflicts(w.mode)) \/ InTheWay(under.found, w.owner, w.mode) THEN
                /\ under' = [under EXCEPT !.at = @ + 1, !.ahead = @ \cup {w.mode}]
                /\ UNCHANGED <<line, latch, pc, mine>>
            ELSE
                /\ line' = [line EXCEPT ![under.name] =
                                SubSeq(@, 1, under.at - 1) \o SubSeq(@, under.at + 1, Len(@))]
                /\ under' = [under EXCEPT !.found = (@ \ {w.old}) \cup {w.r}] @@ [who |-> w]
                /\ Go(t, "w3")
                /\ UNCHANGED <<latch, mine>>
    /\ UNCHANGED <<word, below, marks, state, what, round, woken>>

Grant(t) ==
    LET w == under.who IN
    /\ pc[t] = "w3"
    /\ word' = [Pushed(word, w.r, w.mode, w.old) EXCEPT !.awaited = Awaited(line)]
    /\ below' = [below EXCEPT ![w.r] = word.top]
    /\ UNCHANGED marks
    /\ state' = [state EXCEPT ![w.r] = "live"]
    /\ Go(t, "w3 finish")
    /\ UNCHANGED <<what, line, latch, under, mine, round, woken>>

(* What a conversion replaces is obsolete; then the waiter is told. *)
Wake(t) ==
    LET w == under.who IN
    /\ pc[t] = "w3 finish"
    /\ state' = IF w.old = None THEN state ELSE [state EXCEPT ![w.old] = "obsolete"]
    /\ mine' = IF w.old = None THEN mine ELSE [mine EXCEPT ![w.owner].old = None]
    /\ woken' = [woken EXCEPT ![w.owner] = TRUE]
    /\ under' = [name |-> under.name, then |-> under.then,
                 found |-> under.found, at |-> under.at, ahead |-> under.ahead]
    /\ Go(t, "w2")
    /\ UNCHANGED <<word, below, marks, what, line, latch, round>>

(* ---- waiting ---- *)

Sleep(t) ==
    /\ pc[t] = "sleep" /\ woken[t]
    /\ woken' = [woken EXCEPT ![t] = FALSE]
    /\ Go(t, "hold")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, under, mine, round>>

Leave(t) ==
    /\ pc[t] = "sleep" /\ Leaves /\ ~woken[t]
    /\ Go(t, "leave")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, under, mine, round, woken>>

LeaveLine(t) ==
    LET others(l) == SelectSeq(l, LAMBDA w : w.owner # t) IN
    /\ pc[t] = "leave line"
    /\ line' = [line EXCEPT ![under.name] = others(@)]
    /\ word' = [word EXCEPT !.awaited = Awaited(line')]
    /\ Go(t, "w1")
    /\ UNCHANGED <<below, marks, state, what, latch, under, mine, round, woken>>

(* A conversion that is refused leaves what was held. *)
Refused(t) ==
    /\ pc[t] = "refused"
    /\ IF mine[t].old = None
       THEN Set(t, Nothing) /\ Go(t, "idle") /\ UNCHANGED what
       ELSE /\ Set(t, [mine[t] EXCEPT !.r = mine[t].old, !.old = None])
            /\ what' = [what EXCEPT ![mine[t].old].mode = "S"]
            /\ Go(t, "release")
    /\ UNCHANGED <<word, below, marks, state, line, latch, under, round, woken>>

(* ---- releasing ---- *)

Plain(t, seen) == [r |-> mine[t].r, old |-> mine[t].old, patient |-> TRUE, seen |-> seen]

(* The newest is taken out, r1 and r2 in one: at once if nobody else is live; else its link is frozen, and
   those of the obsolete ones below it, and then the word is exchanged if it is as it was. *)
TakeOut(t) ==
    /\ pc[t] \in {"hold", "release"} /\ word.top = mine[t].r /\ ~word.cleaning
    /\ IF word.live = 1
       THEN /\ word' = Emptied(word)
            /\ marks' = [marks EXCEPT !.gone = @ \cup Chain(word.top)]
            /\ state' = [state EXCEPT ![mine[t].r] = "taken"]
            /\ Set(t, Plain(t, word')) /\ Go(t, "r3")
       ELSE /\ Set(t, Plain(t, word) @@ [at |-> mine[t].r, run |-> {}])
            /\ Go(t, "freeze")
            /\ UNCHANGED <<word, marks, state>>
    /\ UNCHANGED <<below, what, line, latch, under, round, woken>>

Freeze(t) ==
    LET at == mine[t].at IN
    /\ pc[t] = "freeze"
    /\ marks' = [marks EXCEPT !.frozen = @ \cup {at}]
    /\ Set(t, [mine[t] EXCEPT !.at = below[at], !.run = @ \cup {at}])
    /\ Go(t, "below")
    /\ UNCHANGED <<word, below, state, what, line, latch, under, round, woken>>

Below(t) ==
    /\ pc[t] = "below"
    /\ Go(t, IF mine[t].at # None /\ state[mine[t].at] = "obsolete" THEN "freeze" ELSE "take")
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, under, mine, round, woken>>

Take(t) ==
    /\ pc[t] = "take"
    /\ IF word = mine[t].seen
       THEN /\ word' = [word EXCEPT !.top = mine[t].at, !.live = @ - 1]
            /\ marks' = [marks EXCEPT !.gone = @ \cup mine[t].run]
            /\ state' = [state EXCEPT ![mine[t].r] = "taken"]
            /\ Set(t, Plain(t, word')) /\ Go(t, "r3")
       ELSE /\ Set(t, Plain(t, Empty)) /\ Go(t, "release")
            /\ UNCHANGED <<word, marks, state>>
    /\ UNCHANGED <<below, what, line, latch, under, round, woken>>

Mark(t) ==      \* r1, S6
    /\ \/ pc[t] = "r1 late"
       \/ pc[t] \in {"hold", "release"} /\ (word.top # mine[t].r \/ word.cleaning)
    /\ IF Broken = "marked after the word" /\ pc[t] # "r1 late"
       THEN UNCHANGED state
       ELSE state' = [state EXCEPT ![mine[t].r] = "obsolete"]
    /\ Go(t, IF pc[t] = "r1 late" THEN "r3" ELSE "r2")
    /\ UNCHANGED <<word, below, marks, what, line, latch, under, mine, round, woken>>

Count(t) ==     \* r2, S7
    /\ pc[t] = "r2"
    /\ word' = Released(word)
    /\ marks' = IF word'.top = None THEN [marks EXCEPT !.gone = @ \cup Chain(word.top)] ELSE marks
    /\ Set(t, [mine[t] EXCEPT !.seen = word'])
    /\ \/ Go(t, IF Broken = "marked after the word" THEN "r1 late" ELSE "r3")
       \/ Cleans /\ word'.top # None /\ ~word'.cleaning /\ Go(t, "c1")
    /\ UNCHANGED <<below, state, what, line, latch, under, round, woken>>

Ask2(t) ==      \* r3
    /\ pc[t] = "r3"
    /\ IF mine[t].seen.awaited = {} \/ Broken = "who releases does not look"
       THEN Go(t, "idle") /\ Set(t, Nothing)
       ELSE Go(t, "r4") /\ Set(t, [mine[t] EXCEPT !.seen = Empty])
    /\ UNCHANGED <<word, below, marks, state, what, line, latch, under, round, woken>>

(* ---- cleaning ---- *)

CleanBegin(t) ==
    /\ pc[t] = "c1"
    /\ IF word.cleaning THEN Go(t, "r3") /\ UNCHANGED <<word, mine>>
       ELSE /\ word' = [word EXCEPT !.cleaning = TRUE]
            /\ Set(t, mine[t] @@ [start |-> word', kept |-> word.top, at |-> word.top, live |-> {}])
            /\ Go(t, "c2")
    /\ UNCHANGED <<below, marks, state, what, line, latch, under, round, woken>>

(* One request after the other: kept, or linked past unless the link to it is frozen. *)
CleanStep(t) ==
    LET m == mine[t]
        isLive == state[m.at] = "live"
        isFree == m.kept \notin marks.frozen \/ Broken = "cleaning changes frozen links"
    IN
    /\ pc[t] = "c2"
    /\ IF m.at = None THEN Go(t, "c3") /\ UNCHANGED <<below, marks, mine>>
       ELSE /\ IF ~isLive /\ m.at # m.start.top /\ isFree
               THEN /\ below' = [below EXCEPT ![m.kept] = below[m.at]]
                    /\ marks' = [marks EXCEPT !.gone = @ \cup {m.at}]
                    /\ Set(t, [m EXCEPT !.at = below[m.at]])
               ELSE /\ Set(t, [m EXCEPT !.at = below[m.at], !.kept = m.at,
                                        !.live = IF isLive THEN @ \cup {m.at} ELSE @])
                    /\ UNCHANGED <<below, marks>>
            /\ UNCHANGED pc
    /\ UNCHANGED <<word, state, what, line, latch, under, round, woken>>

CleanEnd(t) ==
    LET end == [word EXCEPT !.cleaning = FALSE,
                            !.granted = IF word = mine[t].start \/ Broken = "cleaning does not compare"
                                        THEN {what[r].mode : r \in mine[t].live} ELSE @]
    IN
    /\ pc[t] = "c3"
    /\ word' = IF end.live = 0 THEN Emptied(end) ELSE end
    /\ marks' = IF end.live = 0 THEN [marks EXCEPT !.gone = @ \cup Chain(word.top)] ELSE marks
    /\ Set(t, Plain(t, mine[t].seen))
    /\ Go(t, "r3")
    /\ UNCHANGED <<below, state, what, line, latch, under, round, woken>>

Done == (\A t \in Threads : pc[t] = "idle" /\ round[t] = Rounds) /\ UNCHANGED vars

Next ==
    \/ \E t \in Threads :
        \/ Ask(t) \/ Convert(t) \/ Try(t) \/ Look(t) \/ Walk(t) \/ Swap(t) \/ Finish(t)
        \/ Latch(t) \/ Announce(t) \/ Load(t) \/ Decide(t) \/ DropAtOnce(t) \/ FixHolders(t)
        \/ NextWaiter(t) \/ Grant(t) \/ Wake(t) \/ Sleep(t) \/ Leave(t) \/ LeaveLine(t) \/ Refused(t)
        \/ TakeOut(t) \/ Freeze(t) \/ Below(t) \/ Take(t)
        \/ Mark(t) \/ Count(t) \/ Ask2(t) \/ CleanBegin(t) \/ CleanStep(t) \/ CleanEnd(t)
    \/ Done

Spec == Init /\ [][Next]_vars

AnyOrder == Permutations(Threads)

(* Requests that nobody can reach any more are all alike. (TLC evaluates what is in a view and nothing else,
   so functions that become part of a state are evaluated by `TLCEval`.) *)
Reached == Chain(word.top) \cup UNION {
    Chain(mine[t].seen.top) \cup {mine[t].r, mine[t].old}
        \cup (IF "kept" \in DOMAIN mine[t] THEN Chain(mine[t].kept) \cup Chain(mine[t].at) \cup mine[t].live ELSE {})
        \cup (IF "run" \in DOMAIN mine[t] THEN Chain(mine[t].at) \cup mine[t].run ELSE {}) : t \in Threads}
    \cup (IF "found" \in DOMAIN under THEN under.found ELSE {})
Sight == <<word, line, latch, under, pc, mine, round, woken,
    marks.gone \cap Reached,
    [r \in Ids |-> IF r \in Reached \/ state[r] = "live"
                   THEN <<below[r], state[r], what[r], r \in marks.frozen>>
                   ELSE <<None, state[r], 0>>]>>

(* ---- what must hold ---- *)

(* L1: nobody holds what conflicts. *)
NoConflict ==
    \A r, q \in Ids :
        (state[r] = "live" /\ state[q] = "live" /\ r # q /\ what[r].name = what[q].name
            /\ what[r].owner # what[q].owner)
        => what[r].mode \notin Conflicts(what[q].mode)

(* I1 of `stack`: who is live is in the chain, and the word says so. *)
InTheChain ==
    \A r \in Ids : state[r] = "live" => r \in Chain(word.top) /\ what[r].mode \in word.granted

(* I3 and I5 of `stack`: what was given back is not in the chain. *)
GoneForGood == Chain(word.top) \cap marks.gone = {}

(* L4: when nobody has the latch, or is on the way to it with news, nobody who waits could be granted. *)
OnTheWay == \E t \in Threads : pc[t] \in {"r2", "r1 late", "r3", "r4", "c1", "c2", "c3"}
NoLostWakeUp ==
    (latch = Nobody /\ ~OnTheWay) =>
        \A n \in Names : \A i \in 1..Len(line[n]) :
            LET w == line[n][i] IN
            \/ InTheWay({r \in Ids : state[r] = "live" /\ what[r].name = n}, w.owner, w.mode)
            \/ \E j \in 1..(i - 1) : line[n][j].mode \in Conflicts(w.mode)

(* I3 of `manager`. *)
Announced == latch = Nobody => word.awaited = Awaited(line)
=============================================================================
