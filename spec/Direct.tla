------------------------------- MODULE Direct -------------------------------
(* Weak locks that are only remembered, until somebody asks for a strong one: the protocol of
   `crates/lock/src/managers/direct/mod.rs`, with its steps D1 to D11, over the lists of `remembered`. One
   granule with several names in it.

   The store buffer of each owner's processor is explicit: what it stores goes into the buffer, it reads
   its own buffer first, and the buffer empties one store at a time, whenever it likes. An operation that
   reads, changes and writes one word, and so the taking of a latch, empties it first. The heavy fence
   empties the buffers of all, one after the other. The light fence keeps the compiler from reordering and
   does nothing here.

   The real manager is not modelled beyond its contract: it grants what conflicts with no holder and no
   earlier waiter, in one step. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Owners,     \* those who ask for weak locks
    Strong,     \* those who ask for strong ones
    Names,
    Rounds,     \* transactions of each owner
    Turns,      \* strong locks of each of the strong
    Locks,      \* weak locks of one transaction, at most
    Broken      \* the step that is left out, or "none"

VARIABLES
    granule,    \* count of strong locks held or asked for; whether weak ones are real
    mark,       \* how many revokers are between D6 and D7
    count, entry, slot, touched, latch,     \* of each owner's list, in memory
    buffer,     \* stores of each owner that are on their way
    real,       \* locks in the real manager: who, name, mode
    queue,      \* who waits there, by name
    pc, my,     \* of everybody
    holds       \* what each owner holds, as it sees it: name -> "no", "list", "real"

vars == <<granule, mark, count, entry, slot, touched, latch, buffer, real, queue, pc, my, holds>>

Everybody == Owners \cup Strong
Dead == 0
Index == 1..Locks
Nobody == 0

Init ==
    /\ granule = [count |-> 0, real |-> FALSE]
    /\ mark = 0
    /\ count = [o \in Owners |-> 0]
    /\ entry = [o \in Owners |-> [i \in Index |-> Dead]]
    /\ slot = [o \in Owners |-> [i \in Index |-> FALSE]]
    /\ touched = [o \in Owners |-> FALSE]
    /\ latch = [o \in Owners |-> Nobody]
    /\ buffer = [o \in Owners |-> <<>>]
    /\ real = {}
    /\ queue = [n \in Names |-> <<>>]
    /\ pc = [p \in Everybody |-> "idle"]
    /\ my = [p \in Everybody |-> [turn |-> 0, name |-> 0, at |-> 0, saw |-> FALSE, todo |-> {}]]
    /\ holds = [o \in Owners |-> [n \in Names |-> "no"]]

Go(p, to) == pc' = [pc EXCEPT ![p] = to]
My(p, field, value) == my' = [my EXCEPT ![p][field] = value]

(* ---- memory ---- *)

(* What owner o reads of its own count: the latest store on its way, or memory. *)
RECURSIVE Latest(_, _)
Latest(b, c) ==
    IF b = <<>> THEN c
    ELSE Latest(Tail(b), IF Head(b).what = "count" THEN Head(b).value ELSE c)
OwnCount(o) == Latest(buffer[o], count[o])

RECURSIVE EntryAfter(_, _)
EntryAfter(b, e) ==
    IF b = <<>> THEN e
    ELSE EntryAfter(Tail(b), IF Head(b).what = "entry" THEN [e EXCEPT ![Head(b).at] = Head(b).value] ELSE e)

Store(o, what, at, value) ==
    buffer' = [buffer EXCEPT ![o] = Append(@, [what |-> what, at |-> at, value |-> value])]

Drain(o) ==
    /\ count' = [count EXCEPT ![o] = Latest(buffer[o], @)]
    /\ entry' = [entry EXCEPT ![o] = EntryAfter(buffer[o], @)]
    /\ buffer' = [buffer EXCEPT ![o] = <<>>]

Flush(o) ==
    /\ buffer[o] # <<>>
    /\ count' = [count EXCEPT ![o] = Latest(<<Head(buffer[o])>>, @)]
    /\ entry' = [entry EXCEPT ![o] = EntryAfter(<<Head(buffer[o])>>, @)]
    /\ buffer' = [buffer EXCEPT ![o] = Tail(@)]
    /\ UNCHANGED <<granule, mark, slot, touched, latch, real, queue, pc, my, holds>>

Memory == <<count, entry, buffer>>

(* ---- the real manager, by its contract ---- *)

Free(who, name, mode) ==
    /\ \A lock \in real : (lock.name = name /\ lock.who # who) => (lock.mode = "S" /\ mode = "S")
    /\ \A i \in 1..Len(queue[name]) : queue[name][i].mode = "S" /\ mode = "S"

Lock(who, name, mode) == [who |-> who, name |-> name, mode |-> mode]

(* The first in a queue goes on when nobody is in its way. *)
GrantNext(n) ==
    LET first == Head(queue[n]) IN
    /\ queue[n] # <<>>
    /\ \A lock \in real : (lock.name = n /\ lock.who # first.who) => (lock.mode = "S" /\ first.mode = "S")
    /\ real' = real \cup {Lock(first.who, n, first.mode)}
    /\ queue' = [queue EXCEPT ![n] = Tail(@)]
    /\ Go(first.who, IF first.mode = "S" THEN "open" ELSE "hold")
    /\ holds' = IF first.mode = "S" THEN [holds EXCEPT ![first.who][n] = "real"] ELSE holds
    /\ UNCHANGED <<granule, mark, count, entry, slot, touched, latch, buffer, my>>

AskReal(p, name, mode, then) ==
    IF Free(p, name, mode)
    THEN real' = real \cup {Lock(p, name, mode)} /\ Go(p, then) /\ UNCHANGED queue
    ELSE queue' = [queue EXCEPT ![name] = Append(@, Lock(p, name, mode))] /\ Go(p, "wait") /\ UNCHANGED real

(* ---- a weak request ---- *)

Begin(o) ==
    /\ pc[o] = "idle" /\ my[o].turn < Rounds
    /\ my' = [my EXCEPT ![o].turn = @ + 1]
    /\ Go(o, "open")
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, latch, real, queue, holds>>

(* D1, D9: a granule that is real and has no strong locks may be biased again at any moment. *)
Invite(o) ==
    /\ pc[o] = "open"
    /\ \E name \in Names :
        /\ holds[o][name] = "no"
        /\ My(o, "name", name)
    /\ \/ ~granule.real /\ granule.count = 0 /\ OwnCount(o) < Locks /\ Go(o, "d2")
            /\ UNCHANGED <<granule, Memory>>
       \/ granule.real /\ OwnCount(o) < Locks
            /\ granule.count = 0
            /\ granule' = [granule EXCEPT !.real = FALSE] /\ Drain(o) /\ Go(o, "d2")
       \/ (granule.real \/ granule.count > 0) /\ Go(o, "ask") /\ UNCHANGED <<granule, Memory>>
    /\ UNCHANGED <<mark, slot, touched, latch, real, queue, holds>>

Append1(o) ==       \* D2, the entry
    /\ pc[o] = "d2"
    /\ Store(o, "entry", OwnCount(o) + 1, my[o].name)
    /\ Go(o, "d2 count")
    /\ UNCHANGED <<granule, mark, count, entry, slot, touched, latch, real, queue, my, holds>>

Append2(o) ==       \* D2, the count
    /\ pc[o] = "d2 count"
    /\ Store(o, "count", 0, OwnCount(o) + 1)
    /\ My(o, "at", OwnCount(o) + 1)
    /\ Go(o, "d3")
    /\ UNCHANGED <<granule, mark, count, entry, slot, touched, latch, real, queue, holds>>

ReadAgain(o) ==     \* D3
    /\ pc[o] = "d3"
    /\ IF \/ ~granule.real /\ (granule.count = 0 \/ Broken = "the strong locks are not looked at")
          \/ Broken = "the granule is not read again"
       THEN Go(o, "open") /\ holds' = [holds EXCEPT ![o][my[o].name] = "list"]
       ELSE Go(o, "d4") /\ UNCHANGED holds
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, latch, real, queue, my>>

(* D4, under the latch. The entry is the last one. *)
TakeBack(o) ==
    LET at == my[o].at  e == EntryAfter(buffer[o], entry[o]) IN
    /\ pc[o] = "d4" /\ latch[o] = Nobody
    /\ buffer' = [buffer EXCEPT ![o] = <<>>]
    /\ entry' = [entry EXCEPT ![o] = [e EXCEPT ![at] = Dead]]
    /\ count' = [count EXCEPT ![o] = at - 1]
    /\ slot' = [slot EXCEPT ![o][at] = FALSE]
    /\ IF slot[o][at]
       THEN Go(o, "open") /\ holds' = [holds EXCEPT ![o][my[o].name] = "real"]
       ELSE Go(o, "ask") /\ UNCHANGED holds
    /\ UNCHANGED <<granule, mark, touched, latch, real, queue, my>>

AskWeak(o) ==
    /\ pc[o] = "ask"
    /\ Drain(o)
    /\ AskReal(o, my[o].name, "S", "open")
    /\ holds' = IF pc'[o] = "open" THEN [holds EXCEPT ![o][my[o].name] = "real"] ELSE holds
    /\ UNCHANGED <<granule, mark, slot, touched, latch, my>>

(* ---- the end of a transaction ---- *)

Forget(o) ==        \* D10: nothing is held from here on
    /\ pc[o] = "open"
    /\ Store(o, "count", 0, 0)
    /\ holds' = [holds EXCEPT ![o] = [n \in Names |-> "no"]]
    /\ my' = [my EXCEPT ![o].todo = {n \in Names : holds[o][n] = "real"}]
    /\ Go(o, "d10 mark")
    /\ UNCHANGED <<granule, mark, count, entry, slot, touched, latch, real, queue>>

ReadMark(o) ==
    /\ pc[o] = "d10 mark"
    /\ My(o, "saw", mark # 0 /\ Broken # "the mark is not read")
    /\ Go(o, "d10 touched")
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, latch, real, queue, holds>>

ReadTouched(o) ==
    /\ pc[o] = "d10 touched"
    /\ Go(o, IF my[o].saw \/ touched[o] THEN "d11" ELSE "give back")
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, latch, real, queue, my, holds>>

(* What was converted is real, under the name that the entry had. *)
Collect(o) ==       \* D11
    /\ pc[o] = "d11" /\ latch[o] = Nobody
    /\ Drain(o)
    /\ my' = [my EXCEPT ![o].todo = @ \cup {entry'[o][i] : i \in {j \in Index : slot[o][j]}}]
    /\ slot' = [slot EXCEPT ![o] = [i \in Index |-> FALSE]]
    /\ touched' = [touched EXCEPT ![o] = FALSE]
    /\ Go(o, "give back")
    /\ UNCHANGED <<granule, mark, latch, real, queue, holds>>

GiveBack(o) ==
    /\ pc[o] = "give back"
    /\ IF my[o].todo = {}
       THEN /\ my' = [my EXCEPT ![o] = [turn |-> @.turn, name |-> 0, at |-> 0, saw |-> FALSE, todo |-> {}]]
            /\ Go(o, "idle") /\ UNCHANGED <<real, Memory>>
       ELSE \E name \in my[o].todo :
            /\ Drain(o)
            /\ real' = real \ {Lock(o, name, "S")}
            /\ my' = [my EXCEPT ![o].todo = @ \ {name}]
            /\ UNCHANGED pc
    /\ UNCHANGED <<granule, mark, slot, touched, latch, queue, holds>>

(* ---- a strong request ---- *)

Enter(s) ==         \* D5
    /\ pc[s] = "idle" /\ my[s].turn < Turns
    /\ \E name \in Names : my' = [my EXCEPT ![s].turn = @ + 1, ![s].name = name]
    /\ granule' = [granule EXCEPT !.count = @ + 1]
    /\ Go(s, IF granule.real THEN "d8" ELSE "d6 mark")
    /\ UNCHANGED <<mark, Memory, slot, touched, latch, real, queue, holds>>

Raise(s) ==         \* D6
    /\ pc[s] = "d6 mark"
    /\ mark' = mark + 1
    /\ my' = [my EXCEPT ![s].todo = Owners]
    /\ Go(s, IF Broken = "real before it is converted" THEN "d7" ELSE "d6 fence")
    /\ UNCHANGED <<granule, Memory, slot, touched, latch, real, queue, holds>>

(* The heavy fence reaches one processor after the other. *)
Fence(s) ==
    /\ pc[s] = "d6 fence"
    /\ IF my[s].todo = {} \/ Broken = "no heavy fence"
       THEN /\ my' = [my EXCEPT ![s].todo = Owners] /\ Go(s, "d6 walk") /\ UNCHANGED Memory
       ELSE \E o \in my[s].todo :
            /\ Drain(o)
            /\ my' = [my EXCEPT ![s].todo = @ \ {o}]
            /\ UNCHANGED pc
    /\ UNCHANGED <<granule, mark, slot, touched, latch, real, queue, holds>>

(* A list that is empty is passed by without its latch. The walk ends early when others came to its end. *)
Visit(s) ==
    /\ pc[s] = "d6 walk"
    /\ IF my[s].todo = {} \/ (granule.real /\ Broken # "real before it is converted")
       THEN /\ Go(s, IF Broken = "real before it is converted" THEN "d7 lower" ELSE "d7")
            /\ UNCHANGED <<my, latch>>
       ELSE \E o \in my[s].todo :
            IF count[o] = 0
            THEN my' = [my EXCEPT ![s].todo = @ \ {o}] /\ UNCHANGED <<pc, latch>>
            ELSE /\ latch[o] = Nobody
                 /\ latch' = [latch EXCEPT ![o] = s]
                 /\ my' = [my EXCEPT ![s].todo = @ \ {o}, ![s].at = 0]
                 /\ Go(s, "d6 list")
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, real, queue, holds>>

List(s) == CHOOSE o \in Owners : latch[o] = s

(* The count is read once, and then one entry after the other is looked at. *)
ReadCount(s) ==
    /\ pc[s] = "d6 list"
    /\ my' = [my EXCEPT ![s].at = count[List(s)]]
    /\ Go(s, "d6 entry")
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, latch, real, queue, holds>>

ConvertEntry(s) ==
    LET o == List(s)  at == my[s].at  name == entry[o][at] IN
    /\ pc[s] = "d6 entry"
    /\ IF at = 0
       THEN /\ latch' = [latch EXCEPT ![o] = Nobody] /\ Go(s, "d6 walk")
            /\ UNCHANGED <<my, slot, touched, real>>
       ELSE /\ my' = [my EXCEPT ![s].at = @ - 1]
            /\ IF ~slot[o][at] /\ name # Dead /\ Free(o, name, "S")
               THEN /\ real' = real \cup {Lock(o, name, "S")}
                    /\ slot' = [slot EXCEPT ![o][at] = TRUE]
                    /\ touched' = [touched EXCEPT ![o] = TRUE]
               ELSE UNCHANGED <<real, slot, touched>>
            /\ UNCHANGED <<latch, pc>>
    /\ UNCHANGED <<granule, mark, Memory, queue, holds>>

Settle(s) ==        \* D7
    /\ pc[s] = "d7"
    /\ granule' = [granule EXCEPT !.real = TRUE]
    /\ Go(s, IF Broken = "real before it is converted" THEN "d6 fence" ELSE "d7 lower")
    /\ UNCHANGED <<mark, Memory, slot, touched, latch, real, queue, my, holds>>

Lower(s) ==
    /\ pc[s] = "d7 lower"
    /\ mark' = mark - 1
    /\ my' = [my EXCEPT ![s].todo = {}, ![s].at = 0]
    /\ Go(s, "d8")
    /\ UNCHANGED <<granule, Memory, slot, touched, latch, real, queue, holds>>

AskStrong(s) ==     \* D8
    /\ pc[s] = "d8"
    /\ AskReal(s, my[s].name, "X", "hold")
    /\ UNCHANGED <<granule, mark, Memory, slot, touched, latch, my, holds>>

Release(s) ==
    /\ pc[s] = "hold"
    /\ IF Broken = "discounted before it is released"
       THEN granule' = [granule EXCEPT !.count = @ - 1] /\ UNCHANGED real
       ELSE real' = real \ {Lock(s, my[s].name, "X")} /\ UNCHANGED granule
    /\ Go(s, "leave")
    /\ UNCHANGED <<mark, Memory, slot, touched, latch, queue, my, holds>>

LeaveGranule(s) ==
    /\ pc[s] = "leave"
    /\ IF Broken = "discounted before it is released"
       THEN real' = real \ {Lock(s, my[s].name, "X")} /\ UNCHANGED granule
       ELSE granule' = [granule EXCEPT !.count = @ - 1] /\ UNCHANGED real
    /\ my' = [my EXCEPT ![s].name = 0]
    /\ Go(s, "idle")
    /\ UNCHANGED <<mark, Memory, slot, touched, latch, queue, holds>>

Done ==
    /\ \A o \in Owners : pc[o] = "idle" /\ my[o].turn = Rounds
    /\ \A s \in Strong : pc[s] = "idle" /\ my[s].turn = Turns
    /\ UNCHANGED vars

Next ==
    \/ \E o \in Owners :
        \/ Flush(o) \/ Begin(o) \/ Invite(o) \/ Append1(o) \/ Append2(o) \/ ReadAgain(o) \/ TakeBack(o)
        \/ AskWeak(o) \/ Forget(o) \/ ReadMark(o) \/ ReadTouched(o) \/ Collect(o) \/ GiveBack(o)
    \/ \E s \in Strong :
        \/ Enter(s) \/ Raise(s) \/ Fence(s) \/ Visit(s) \/ ReadCount(s) \/ ConvertEntry(s) \/ Settle(s)
        \/ Lower(s) \/ AskStrong(s) \/ Release(s) \/ LeaveGranule(s)
    \/ \E n \in Names : GrantNext(n)
    \/ Done

Spec == Init /\ [][Next]_vars

AnyOrder == Permutations(Owners) \cup Permutations(Strong)

(* ---- what must hold ---- *)

(* L1: nobody holds strongly what somebody holds weakly. *)
NoConflict ==
    \A o \in Owners, s \in Strong, n \in Names :
        ~(holds[o][n] # "no" /\ pc[s] = "hold" /\ my[s].name = n)

(* The real manager keeps its own contract, whatever is converted into it. *)
RealIsSound ==
    \A a, b \in real : (a.name = b.name /\ a.who # b.who) => (a.mode = "S" /\ b.mode = "S")

(* What an owner believes to be real is. *)
RealIsReal == \A o \in Owners, n \in Names : holds[o][n] = "real" => Lock(o, n, "S") \in real

(* L7: after the end of a transaction nothing of it is left. *)
NothingIsLeft ==
    \A o \in Owners : pc[o] = "idle" => ~\E lock \in real : lock.who = o

(* I1 *)
BiasedMeansWeak ==
    (~granule.real /\ granule.count = 0) => ~\E lock \in real : lock.mode = "X"
=============================================================================
