-------------------------------- MODULE Tails --------------------------------
(* The document's own form of the lock manager `staged` (`staged:paper`): chains that grow at the tail in two
   steps, an exchange and a link (`crates/lock/src/managers/staged/chain_tail.rs`), and the same lines of those who
   wait behind a latch. One chain, one name. S1..S7 are the points of the document. Every action is one
   atomic step on shared memory; a walk goes from request to request.

   Left out, as in `Staged`: reclaiming memory, deadlocks, and memory orders. Conversions and waits that end
   early are left out here too: the lines are the same code. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Threads,
    Rounds,     \* locks that each thread takes, one after the other
    Cleans,     \* whether who releases may clean the chain
    Broken      \* the step that is left out, or "none"

None == <<0, 0>>
Nobody == 0
Modes == {"S", "X"}
Conflicts(m) == IF m = "X" THEN Modes ELSE {"X"}
Ids == Threads \X (1..Rounds)

VARIABLES
    head, tail, next,   \* the chain
    state,      \* request -> "new", "asking", "active", "waiting", "obsolete"
    mode,       \* request -> its mode
    awaited,    \* in the chain's word: what the line waits for
    cleaning,   \* whether somebody unlinks
    gone,       \* what was unlinked
    line,       \* those who wait, first come first: their requests
    latch,      \* who has the latch of the line
    pc, mine, round, woken

chain == <<head, tail, next>>
vars == <<chain, state, mode, awaited, cleaning, gone, line, latch, pc, mine, round, woken>>

Owner(r) == r[1]
InTheWay(q, r) == Owner(q) # Owner(r) /\ mode[q] \in Conflicts(mode[r])
Awaited(l) == {mode[l[i]] : i \in 1..Len(l)}
Go(t, to) == pc' = [pc EXCEPT ![t] = to]
Set(t, value) == mine' = [mine EXCEPT ![t] = value]
With(t, at, found) == [r |-> mine[t].r, at |-> at, found |-> found, then |-> mine[t].then]
Nothing == [r |-> None, at |-> None, found |-> {}, then |-> "idle"]

Init ==
    /\ head = None /\ tail = None /\ next = TLCEval([r \in Ids |-> None])
    /\ state = TLCEval([r \in Ids |-> "new"]) /\ mode = TLCEval([r \in Ids |-> "none"])
    /\ awaited = {} /\ cleaning = FALSE /\ gone = {} /\ line = <<>> /\ latch = Nobody
    /\ pc = TLCEval([t \in Threads |-> "idle"]) /\ mine = TLCEval([t \in Threads |-> Nothing])
    /\ round = TLCEval([t \in Threads |-> 0]) /\ woken = TLCEval([t \in Threads |-> FALSE])

(* ---- asking ---- *)

Ask(t) ==
    LET r == <<t, round[t] + 1>> IN
    /\ pc[t] = "idle" /\ round[t] < Rounds
    /\ \E m \in Modes : mode' = [mode EXCEPT ![r] = m]
    /\ state' = [state EXCEPT ![r] = "asking"]
    /\ round' = [round EXCEPT ![t] = @ + 1]
    /\ Set(t, [Nothing EXCEPT !.r = r])
    /\ Go(t, "swap")
    /\ UNCHANGED <<chain, awaited, cleaning, gone, line, latch, woken>>

Swap(t) ==      \* S1, the first half: `at` is the predecessor
    /\ pc[t] = "swap"
    /\ tail' = mine[t].r
    /\ Set(t, With(t, tail, {}))
    /\ Go(t, "link")
    /\ UNCHANGED <<head, next, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

Link(t) ==      \* S1, the second half
    /\ pc[t] = "link"
    /\ IF mine[t].at = None THEN head' = mine[t].r /\ UNCHANGED next
       ELSE next' = [next EXCEPT ![mine[t].at] = mine[t].r] /\ UNCHANGED head
    /\ Go(t, "first")
    /\ UNCHANGED <<tail, state, mode, awaited, cleaning, gone, line, latch, mine, round, woken>>

(* Who comes to a tear waits there. *)
First(t) ==
    /\ pc[t] = "first"
    /\ IF head # None THEN Set(t, With(t, head, {})) /\ Go(t, "visit")
       ELSE Broken = "nobody waits at a tear" /\ Go(t, "know") /\ Set(t, With(t, None, {}))
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

Visit(t) ==
    LET at == mine[t].at
        hit == InTheWay(at, mine[t].r) /\ state[at] # "obsolete"
    IN
    /\ pc[t] = "visit"
    /\ Set(t, With(t, at, IF hit THEN {at} \cup mine[t].found ELSE mine[t].found))
    /\ Go(t, IF at = mine[t].r \/ (hit /\ Broken = "the walk ends at who is in the way") THEN "know"
             ELSE "step")
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

Step(t) ==
    LET to == next[mine[t].at] IN
    /\ pc[t] = "step"
    /\ IF to # None THEN Set(t, With(t, to, mine[t].found)) /\ Go(t, "visit")
       ELSE Broken = "nobody waits at a tear" /\ Go(t, "know") /\ UNCHANGED mine
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

Know(t) ==
    LET free == mine[t].found = {} IN
    /\ pc[t] = "know"
    /\ state' = [state EXCEPT ![mine[t].r] = IF free THEN "active" ELSE "waiting"]
    /\ Set(t, With(t, None, {}))
    /\ Go(t, IF free THEN "hold" ELSE "latch")
    /\ UNCHANGED <<chain, mode, awaited, cleaning, gone, line, latch, round, woken>>

(* ---- under the latch ---- *)

Latch(t) ==
    /\ pc[t] \in {"latch", "news"} /\ latch = Nobody
    /\ latch' = t
    /\ mine' = [mine EXCEPT ![t].then = IF pc[t] = "latch" THEN "sleep" ELSE "idle"]
    /\ Go(t, IF pc[t] = "latch" THEN "announce" ELSE "look again")
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, round, woken>>

Announce(t) ==      \* S2
    /\ pc[t] = "announce"
    /\ awaited' = IF Broken = "no announcement" THEN awaited ELSE awaited \cup {mode[mine[t].r]}
    /\ Go(t, "look")
    /\ UNCHANGED <<chain, state, mode, cleaning, gone, line, latch, mine, round, woken>>

Look(t) ==      \* S3
    /\ pc[t] \in {"look", "look again"}
    /\ Set(t, With(t, head, {}))
    /\ Go(t, IF pc[t] = "look" THEN "holders" ELSE "holders again")
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

IsHolder(r) ==
    state[r] = "active" \/ (state[r] = "asking" /\ Broken # "who asks is not in the way")

Holders(t) ==   \* S4: up to the end, or a tear
    LET at == mine[t].at IN
    /\ pc[t] \in {"holders", "holders again"}
    /\ IF at # None THEN
            /\ Set(t, With(t, next[at], IF IsHolder(at) THEN {at} \cup mine[t].found ELSE mine[t].found))
            /\ UNCHANGED pc
       ELSE Go(t, IF pc[t] = "holders" THEN "decide" ELSE "regrant") /\ UNCHANGED mine
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

Decide(t) ==
    LET r == mine[t].r
        blocked == \/ \E h \in mine[t].found : InTheWay(h, r)
                   \/ \E i \in 1..Len(line) : InTheWay(line[i], r)
    IN
    /\ pc[t] = "decide"
    /\ IF blocked THEN
            /\ line' = Append(line, r)
            /\ awaited' = IF Broken = "no announcement" THEN Awaited(line') ELSE awaited
            /\ latch' = IF Broken = "no announcement" THEN Nobody ELSE t
            /\ Go(t, IF Broken = "no announcement" THEN "sleep" ELSE "look again")
            /\ UNCHANGED state
       ELSE
            /\ state' = [state EXCEPT ![r] = "active"]
            /\ awaited' = Awaited(line)
            /\ latch' = Nobody
            /\ Go(t, "hold")
            /\ UNCHANGED line
    /\ UNCHANGED <<chain, mode, cleaning, gone, mine, round, woken>>

(* The first who can be granted is; until there is none. *)
Regrant(t) ==
    LET blocked(i) == \/ \E h \in mine[t].found : InTheWay(h, line[i])
                      \/ \E j \in 1..(i - 1) : InTheWay(line[j], line[i])
        free == {i \in 1..Len(line) : ~blocked(i)}
    IN
    /\ pc[t] = "regrant"
    /\ IF free = {} THEN
            /\ latch' = Nobody
            /\ Go(t, mine[t].then)
            /\ Set(t, IF mine[t].then = "idle" THEN Nothing ELSE With(t, None, {}))
            /\ UNCHANGED <<state, awaited, line, woken>>
       ELSE LET i == CHOOSE i \in free : \A j \in free : i <= j
                r == line[i]
            IN
            /\ line' = SubSeq(line, 1, i - 1) \o SubSeq(line, i + 1, Len(line))
            /\ state' = [state EXCEPT ![r] = "active"]
            /\ awaited' = Awaited(line')
            /\ woken' = [woken EXCEPT ![Owner(r)] = TRUE]
            /\ Set(t, With(t, None, {r} \cup mine[t].found))
            /\ UNCHANGED <<latch, pc>>
    /\ UNCHANGED <<chain, mode, cleaning, gone, round>>

Sleep(t) ==     \* S5
    /\ pc[t] = "sleep" /\ woken[t]
    /\ woken' = [woken EXCEPT ![t] = FALSE]
    /\ Go(t, "hold")
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, mine, round>>

(* ---- releasing ---- *)

Late == Broken = "marked after the word"

Mark(t) ==      \* S6
    /\ pc[t] \in {"hold", "mark late"}
    /\ state' = IF Late /\ pc[t] = "hold" THEN state ELSE [state EXCEPT ![mine[t].r] = "obsolete"]
    /\ Go(t, IF pc[t] = "hold" THEN "count" ELSE "after")
    /\ UNCHANGED <<chain, mode, awaited, cleaning, gone, line, latch, mine, round, woken>>

Count(t) ==     \* S7
    /\ pc[t] = "count"
    /\ Set(t, [mine[t] EXCEPT !.then =
        IF awaited = {} \/ Broken = "who releases does not look" THEN "idle" ELSE "news"])
    /\ Go(t, IF Late THEN "mark late" ELSE "after")
    /\ UNCHANGED <<chain, state, mode, awaited, cleaning, gone, line, latch, round, woken>>

Leave(t) ==
    /\ Go(t, mine[t].then)
    /\ Set(t, IF mine[t].then = "idle" THEN Nothing ELSE With(t, None, {}))

After(t) ==
    /\ pc[t] = "after"
    /\ \/ Leave(t) /\ UNCHANGED cleaning
       \/ /\ Cleans /\ ~cleaning
          /\ cleaning' = TRUE
          /\ Set(t, [r |-> None, at |-> head, found |-> {}, then |-> mine[t].then])
          /\ Go(t, "clean")
    /\ UNCHANGED <<chain, state, mode, awaited, gone, line, latch, round, woken>>

(* One after the other; `r` is what was kept last. *)
Clean(t) ==
    LET at == mine[t].at  to == next[at]  kept == mine[t].r
        goes == state[at] = "obsolete" /\ (to # None \/ Broken = "the newest is unlinked, too")
    IN
    /\ pc[t] = "clean"
    /\ IF at = None THEN
            /\ cleaning' = FALSE
            /\ Leave(t)
            /\ UNCHANGED <<chain, gone>>
       ELSE
            /\ head' = IF goes /\ kept = None THEN to ELSE head
            /\ next' = IF goes /\ kept # None THEN [next EXCEPT ![kept] = to] ELSE next
            /\ gone' = IF goes THEN gone \cup {at} ELSE gone
            /\ Set(t, [mine[t] EXCEPT !.at = to, !.r = IF goes THEN kept ELSE at])
            /\ UNCHANGED <<tail, cleaning, pc>>
    /\ UNCHANGED <<state, mode, awaited, line, latch, round, woken>>

Done == (\A t \in Threads : pc[t] = "idle" /\ round[t] = Rounds) /\ UNCHANGED vars

Next ==
    \/ \E t \in Threads :
        \/ Ask(t) \/ Swap(t) \/ Link(t) \/ First(t) \/ Visit(t) \/ Step(t) \/ Know(t)
        \/ Latch(t) \/ Announce(t) \/ Look(t) \/ Holders(t) \/ Decide(t) \/ Regrant(t) \/ Sleep(t)
        \/ Mark(t) \/ Count(t) \/ After(t) \/ Clean(t)
    \/ Done

Spec == Init /\ [][Next]_vars

AnyOrder == Permutations(Threads)

(* ---- what must hold ---- *)

(* L1: nobody holds what conflicts. *)
NoConflict ==
    \A r, q \in Ids : (state[r] = "active" /\ state[q] = "active") => ~InTheWay(r, q)

RECURSIVE From(_)
From(r) == IF r = None THEN {} ELSE {r} \cup From(next[r])

(* Who is linked is found, until it is obsolete; unless somebody before it is about to be linked. *)
Torn == \E t \in Threads : pc[t] = "link"
InTheChain ==
    /\ From(head) \cap gone = {}
    /\ ~Torn => \A r \in Ids :
        \/ state[r] \in {"new", "obsolete"} \/ pc[Owner(r)] = "swap"
        \/ r \in From(head)

(* L4: when nobody has the latch, or is on the way to it, nobody who waits could be granted. *)
OnTheWay == \E t \in Threads : pc[t] \in {"latch", "news", "count", "mark late", "after", "clean"}
NoLostWakeUp ==
    (latch = Nobody /\ ~OnTheWay) =>
        \A i \in 1..Len(line) :
            \/ \E q \in Ids : state[q] \in {"active", "asking"} /\ InTheWay(q, line[i])
            \/ \E j \in 1..(i - 1) : InTheWay(line[j], line[i])

Announced == latch = Nobody => awaited = Awaited(line)
=============================================================================
