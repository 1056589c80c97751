------------------------------- MODULE Anchors -------------------------------
(* Locks whose word is in their record: steps A1 to A8 of `crates/lock/src/managers/direct/mod.rs`, for one
   name, whose record comes and goes. The remembered locks of its granule are there, and the revoker that
   makes them real without knowing the word. Their own protocol, D1 to D11, is in `Direct`; here memory is
   one, and what happens under the latch of a list is one step.

   The latch of the queue is explicit, because the word changes without it: a free word is taken (A1), and a
   held one is given back (A2), at any moment. A step reads and exchanges the word once. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Owners,
    Modes,      \* modes that are requested: a subset of {"S", "X"}
    Rounds,     \* transactions of each owner
    Records,    \* records of the name, one after the other, at most
    Present,    \* TRUE if the first is there at the beginning
    Broken      \* the step that is left out, or "none"

VARIABLES
    granule,    \* count of strong locks held or requested; whether weak ones are real
    converted,  \* count of converted locks
    word,       \* of each record: its state, and the holder with its mode
    current,    \* the record that is in the table, or 0
    entry,      \* whether the owner's list has the name
    slot,       \* whether that entry is converted
    walker,     \* the revoker that has the latch of the owner's list, or Nobody
    latch,      \* the owner that has the latch of the queue, or Nobody
    granted,    \* locks in the queue
    waiting,    \* requests in the queue
    pc, my

vars == <<granule, converted, word, current, entry, slot, walker, latch, granted, waiting, pc, my>>

Nobody == "nobody"
Index == 1..Records
NoHolder == [who |-> Nobody, mode |-> "S"]
Word(state, holder) == [state |-> state, holder |-> holder]
Lock(p, mode) == [who |-> p, mode |-> mode]
Fresh == [round |-> 0, mode |-> "S", record |-> 0, held |-> "no", counted |-> FALSE,
          may |-> FALSE, todo |-> {}, at |-> Nobody]

Init ==
    /\ granule = [count |-> 0, real |-> FALSE]
    /\ converted = 0
    /\ current = IF Present THEN 1 ELSE 0
    /\ word = [r \in Index |-> Word(IF Present /\ r = 1 THEN "free" ELSE "none", NoHolder)]
    /\ entry = [p \in Owners |-> FALSE]
    /\ slot = [p \in Owners |-> FALSE]
    /\ walker = [p \in Owners |-> Nobody]
    /\ latch = Nobody
    /\ granted = {}
    /\ waiting = <<>>
    /\ pc = [p \in Owners |-> "idle"]
    /\ my = [p \in Owners |-> Fresh]

Go(p, to) == pc' = [pc EXCEPT ![p] = to]
Set(p, field, value) == my' = [my EXCEPT ![p][field] = value]
SetWord(r, w) == word' = [word EXCEPT ![r] = w]

Compatible(a, b) == a = "S" /\ b = "S"
FitsGranted(p, mode) == \A lock \in granted : lock.who = p \/ Compatible(lock.mode, mode)

List == <<entry, slot, walker>>
Queue == <<latch, granted, waiting>>

Begin(p) ==
    /\ pc[p] = "idle" /\ my[p].round < Rounds
    /\ \E mode \in Modes :
        /\ my' = [my EXCEPT ![p] = [Fresh EXCEPT !.round = my[p].round + 1, !.mode = mode, !.record = current]]
        /\ Go(p, IF mode = "S" THEN "weak" ELSE "count")
    /\ UNCHANGED <<granule, converted, word, current, List, Queue>>

(* ---- a weak request: D1 to D4, D9 ---- *)

Bias ==
    /\ granule.real /\ granule.count = 0
    /\ granule' = [granule EXCEPT !.real = FALSE]
    /\ UNCHANGED <<converted, word, current, List, Queue, pc, my>>

Remember(p) ==
    /\ pc[p] = "weak"
    /\ IF ~granule.real /\ granule.count = 0
       THEN entry' = [entry EXCEPT ![p] = TRUE] /\ Go(p, "again")
       ELSE Go(p, "ask") /\ UNCHANGED entry
    /\ UNCHANGED <<granule, converted, word, current, slot, walker, Queue, my>>

Again(p) ==
    /\ pc[p] = "again"
    /\ IF ~granule.real /\ granule.count = 0
       THEN Go(p, "open") /\ Set(p, "held", "list")
       ELSE Go(p, "take back") /\ UNCHANGED my
    /\ UNCHANGED <<granule, converted, word, current, List, Queue>>

TakeBack(p) ==
    /\ pc[p] = "take back" /\ walker[p] = Nobody
    /\ entry' = [entry EXCEPT ![p] = FALSE]
    /\ slot' = [slot EXCEPT ![p] = FALSE]
    /\ IF slot[p]
       THEN Go(p, "open") /\ Set(p, "held", "converted")
       ELSE Go(p, "ask") /\ UNCHANGED my
    /\ UNCHANGED <<granule, converted, word, current, walker, Queue>>

(* ---- a strong request: D5 to D7 ---- *)

Count(p) ==
    /\ pc[p] = "count"
    /\ granule' = [granule EXCEPT !.count = @ + 1]
    /\ my' = [my EXCEPT ![p].counted = TRUE, ![p].todo = Owners \ {p}]
    /\ Go(p, IF granule.real THEN "ask" ELSE "walk")
    /\ UNCHANGED <<converted, word, current, List, Queue>>

(* An entry that is not converted yet is counted, before the granule is read. *)
Visit(p) ==
    /\ pc[p] = "walk"
    /\ \E q \in my[p].todo :
        /\ walker[q] = Nobody
        /\ IF entry[q] /\ ~slot[q]
           THEN /\ converted' = IF Broken = "converted and then counted" THEN converted ELSE converted + 1
                /\ walker' = [walker EXCEPT ![q] = p]
                /\ my' = [my EXCEPT ![p].todo = @ \ {q}, ![p].at = q]
                /\ Go(p, "convert")
           ELSE Set(p, "todo", my[p].todo \ {q}) /\ UNCHANGED <<converted, walker, pc>>
    /\ UNCHANGED <<granule, word, current, entry, slot, Queue>>

Convert(p) ==
    LET q == my[p].at
        late == granule.real /\ Broken # "the granule is not read again" IN
    /\ pc[p] = "convert" /\ latch = Nobody
    /\ IF ~late /\ FitsGranted(q, "S") /\ waiting = <<>>
       THEN /\ granted' = granted \cup {Lock(q, "S")}
            /\ slot' = [slot EXCEPT ![q] = TRUE]
            /\ Go(p, IF Broken = "converted and then counted" THEN "count it" ELSE "walk")
            /\ UNCHANGED converted
       ELSE /\ converted' = IF Broken = "converted and then counted" THEN converted ELSE converted - 1
            /\ Go(p, "walk")
            /\ UNCHANGED <<granted, slot>>
    /\ walker' = [walker EXCEPT ![q] = Nobody]
    /\ UNCHANGED <<granule, word, current, entry, latch, waiting, my>>

CountLate(p) ==
    /\ pc[p] = "count it"
    /\ converted' = converted + 1
    /\ Go(p, "walk")
    /\ UNCHANGED <<granule, word, current, List, Queue, my>>

Settle(p) ==
    /\ pc[p] = "walk" /\ my[p].todo = {}
    /\ granule' = [granule EXCEPT !.real = TRUE]
    /\ Go(p, "ask")
    /\ UNCHANGED <<converted, word, current, List, Queue, my>>

(* ---- A1 ---- *)

(* A strong request reads the count of converted locks. *)
Ask(p) ==
    /\ pc[p] = "ask"
    /\ Set(p, "may", my[p].mode = "S" \/ converted = 0 \/ Broken = "converted locks are ignored")
    /\ Go(p, "take")
    /\ UNCHANGED <<granule, converted, word, current, List, Queue>>

Take(p) ==
    LET r == my[p].record IN
    /\ pc[p] = "take"
    /\ IF r # 0 /\ my[p].may /\ word[r].state = "free"
       THEN /\ SetWord(r, Word("held", Lock(p, my[p].mode)))
            /\ Set(p, "held", "word") /\ Go(p, "open")
       ELSE Go(p, "latch") /\ UNCHANGED <<word, my>>
    /\ UNCHANGED <<granule, converted, current, List, Queue>>

(* ---- A3 and A5, under the latch of the queue ---- *)

Latch(p) ==
    /\ pc[p] = "latch" /\ latch = Nobody
    /\ latch' = p
    /\ Go(p, "word")
    /\ UNCHANGED <<granule, converted, word, current, List, granted, waiting, my>>

FixWord(p) ==
    LET r == my[p].record
        state == word[r].state
        empty == (granted = {} /\ waiting = <<>>) \/ Broken = "the queue is ignored" IN
    /\ pc[p] = "word"
    /\ IF r = 0
       THEN Go(p, "queue") /\ UNCHANGED <<word, my, latch, granted>>
       ELSE IF my[p].may /\ (state = "free" \/ (state = "queued" /\ empty))
       THEN /\ SetWord(r, Word("held", Lock(p, my[p].mode)))
            /\ Set(p, "held", "word") /\ Go(p, "open")
            /\ latch' = Nobody
            /\ UNCHANGED granted
       ELSE /\ CASE state = "free" -> SetWord(r, Word("queued", NoHolder)) /\ UNCHANGED granted
                 [] state = "held" -> /\ SetWord(r, Word("inflated", word[r].holder))
                                      /\ granted' = granted \cup {word[r].holder}
                 [] OTHER -> UNCHANGED <<word, granted>>
            /\ Go(p, "queue")
            /\ UNCHANGED <<my, latch>>
    /\ UNCHANGED <<granule, converted, current, List, waiting>>

(* Without a record, or with one that is gone, the grant is to be confirmed. *)
After(p) ==
    LET r == my[p].record IN
    IF r = 0 \/ word[r].state = "dead" THEN "confirm" ELSE "open"

Enqueue(p) ==
    /\ pc[p] = "queue"
    /\ IF waiting = <<>> /\ FitsGranted(p, my[p].mode)
       THEN /\ granted' = granted \cup {Lock(p, my[p].mode)}
            /\ Set(p, "held", "queue") /\ Go(p, After(p))
            /\ UNCHANGED waiting
       ELSE /\ waiting' = Append(waiting, Lock(p, my[p].mode))
            /\ Go(p, "wait") /\ UNCHANGED <<granted, my>>
    /\ latch' = Nobody
    /\ UNCHANGED <<granule, converted, word, current, List>>

GrantNext ==
    /\ waiting # <<>> /\ latch = Nobody
    /\ LET p == Head(waiting).who IN
        /\ FitsGranted(p, Head(waiting).mode)
        /\ granted' = granted \cup {Head(waiting)}
        /\ waiting' = Tail(waiting)
        /\ Set(p, "held", "queue")
        /\ Go(p, After(p))
    /\ UNCHANGED <<granule, converted, word, current, List, latch>>

(* ---- A6 ---- *)

Search(p) ==
    /\ pc[p] = "confirm"
    /\ IF current = 0 \/ Broken = "the grant is not confirmed"
       THEN Go(p, "open") /\ UNCHANGED my
       ELSE Set(p, "record", current) /\ Go(p, "confirm it")
    /\ UNCHANGED <<granule, converted, word, current, List, Queue>>

Confirm(p) ==
    LET r == my[p].record IN
    /\ pc[p] = "confirm it" /\ latch = Nobody
    /\ CASE word[r].state \in {"queued", "inflated"} /\ FitsGranted(p, my[p].mode) ->
                Go(p, "open") /\ UNCHANGED <<granted, my, granule>>
         [] word[r].state = "dead" -> Go(p, "confirm") /\ UNCHANGED <<granted, my, granule>>
         [] OTHER ->
                /\ granted' = granted \ {Lock(p, my[p].mode)}
                /\ granule' = IF my[p].counted THEN [granule EXCEPT !.count = @ - 1] ELSE granule
                /\ my' = [my EXCEPT ![p].held = "no", ![p].counted = FALSE]
                /\ Go(p, IF my[p].mode = "S" THEN "weak" ELSE "count")
    /\ UNCHANGED <<converted, word, current, List, latch, waiting>>

(* ---- the record comes and goes: its owner holds the name exclusively ---- *)

Next0 == CHOOSE r \in Index : word[r].state = "none" /\ \A s \in Index : s < r => word[s].state # "none"

Insert(p) ==
    /\ pc[p] = "open" /\ my[p].mode = "X" /\ current = 0
    /\ \E r \in Index : word[r].state = "none"
    /\ SetWord(Next0, Word(IF Broken = "born free" THEN "free" ELSE "queued", NoHolder))
    /\ current' = Next0
    /\ UNCHANGED <<granule, converted, List, Queue, pc, my>>

(* A grant that is to be confirmed may be beside the word. Its owner must find the record. *)
Unanchor(p) ==      \* A8
    /\ pc[p] = "open" /\ my[p].mode = "X" /\ current # 0 /\ latch = Nobody
    /\ FitsGranted(p, "X") \/ Broken = "removed beside another grant"
    /\ IF my[p].held = "word"
       THEN /\ SetWord(current, Word("inflated", word[current].holder))
            /\ granted' = granted \cup {Lock(p, "X")}
            /\ Set(p, "held", "queue")
       ELSE UNCHANGED <<word, granted, my>>
    /\ Go(p, "unlink")
    /\ UNCHANGED <<granule, converted, current, List, latch, waiting>>

Unlink(p) ==
    /\ pc[p] = "unlink"
    /\ current' = 0
    /\ Set(p, "record", current)
    /\ Go(p, "kill")
    /\ UNCHANGED <<granule, converted, word, List, Queue>>

Kill(p) ==
    /\ pc[p] = "kill"
    /\ IF Broken = "a removed record stays alive"
       THEN SetWord(my[p].record, Word("queued", NoHolder))
       ELSE SetWord(my[p].record, Word("dead", NoHolder))
    /\ Go(p, "open")
    /\ UNCHANGED <<granule, converted, current, List, Queue, my>>

(* ---- the end: A2 ---- *)

Forget(p) ==        \* D10 and D11
    /\ pc[p] = "open" /\ my[p].held = "list" /\ walker[p] = Nobody
    /\ entry' = [entry EXCEPT ![p] = FALSE]
    /\ slot' = [slot EXCEPT ![p] = FALSE]
    /\ IF slot[p]
       THEN Set(p, "held", "converted") /\ UNCHANGED pc
       ELSE Set(p, "held", "no") /\ Go(p, "leave")
    /\ UNCHANGED <<granule, converted, word, current, walker, Queue>>

FreeWord(p) ==
    LET r == my[p].record IN
    /\ pc[p] = "open" /\ my[p].held = "word"
    /\ IF word[r].state = "held"
       THEN SetWord(r, Word("free", NoHolder)) /\ Set(p, "held", "no") /\ Go(p, "leave")
       ELSE Go(p, "give back") /\ UNCHANGED <<word, my>>
    /\ UNCHANGED <<granule, converted, current, List, Queue>>

(* The word was inflated. *)
GiveBack(p) ==
    LET r == my[p].record
        left == granted \ {Lock(p, my[p].mode)}
        empty == (left = {} /\ waiting = <<>>) \/ Broken = "deflated beside others" IN
    /\ pc[p] = "give back" /\ latch = Nobody
    /\ granted' = left
    /\ SetWord(r, Word(IF empty THEN "free" ELSE "queued", NoHolder))
    /\ Set(p, "held", "no") /\ Go(p, "leave")
    /\ UNCHANGED <<granule, converted, current, List, latch, waiting>>

FreeQueued(p) ==
    /\ pc[p] = "open" /\ my[p].held \in {"queue", "converted"} /\ latch = Nobody
    /\ granted' = granted \ {Lock(p, my[p].mode)}
    /\ Set(p, "held", "no")
    /\ Go(p, IF my[p].held = "converted" THEN "uncount" ELSE "leave")
    /\ UNCHANGED <<granule, converted, word, current, List, latch, waiting>>

Uncount(p) ==
    /\ pc[p] = "uncount"
    /\ converted' = converted - 1
    /\ Go(p, "leave")
    /\ UNCHANGED <<granule, word, current, List, Queue, my>>

Leave(p) ==
    /\ pc[p] = "leave"
    /\ granule' = IF my[p].counted THEN [granule EXCEPT !.count = @ - 1] ELSE granule
    /\ my' = [my EXCEPT ![p] = [Fresh EXCEPT !.round = my[p].round]]
    /\ Go(p, "idle")
    /\ UNCHANGED <<converted, word, current, List, Queue>>

Done ==
    /\ \A p \in Owners : pc[p] = "idle" /\ my[p].round = Rounds
    /\ UNCHANGED vars

Next ==
    \/ \E p \in Owners :
        \/ Begin(p) \/ Remember(p) \/ Again(p) \/ TakeBack(p) \/ Count(p) \/ Visit(p) \/ Convert(p)
        \/ CountLate(p) \/ Settle(p) \/ Ask(p) \/ Take(p) \/ Latch(p) \/ FixWord(p) \/ Enqueue(p)
        \/ Search(p) \/ Confirm(p) \/ Insert(p) \/ Unanchor(p) \/ Unlink(p) \/ Kill(p)
        \/ Forget(p) \/ FreeWord(p) \/ GiveBack(p) \/ FreeQueued(p) \/ Uncount(p) \/ Leave(p)
    \/ GrantNext \/ Bias \/ Done

Spec == Init /\ [][Next]_vars

AnyOrder == Permutations(Owners)

(* ---- what must hold ---- *)

Holds(p) == pc[p] \in {"open", "unlink", "kill", "give back"} /\ my[p].held # "no"

(* L1 *)
NoConflict == \A p, q \in Owners : (p # q /\ Holds(p) /\ Holds(q)) => Compatible(my[p].mode, my[q].mode)

(* N1: beside a word that says all, the queue has converted locks and grants to be confirmed alone. *)
OneTruth ==
    (current # 0 /\ word[current].state \in {"free", "held"}) =>
        \A lock \in granted :
            \/ slot[lock.who] \/ my[lock.who].held = "converted"
            \/ pc[lock.who] \in {"confirm", "confirm it"}

(* A converted lock is counted. *)
Counted == Cardinality({p \in Owners : slot[p] \/ (my[p].held = "converted")}) <= converted

(* L7 *)
NothingIsLeft ==
    (\A p \in Owners : pc[p] = "idle") =>
        /\ granted = {} /\ waiting = <<>> /\ converted = 0 /\ granule.count = 0
        /\ \A r \in Index : word[r].state # "held"
=============================================================================
