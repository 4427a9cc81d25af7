"""Where is X decided?

The decisions of headway: pure functions and small state, standard library only. The clock is an
argument (`now`, seconds); an answer is a frozen value.

======================================================  ==================  =======================
question                                                file                answer
======================================================  ==================  =======================
What is a tier, and which one does a name mean?         ``tier.py``         `Tier`
What does a request cost?                               ``cost.py``         cost units
May it join the queue, and who is shed for it?          ``admission.py``    `Admit` or `Shed`
Which tenants does an overloaded tier turn away?        ``shedding.py``     whole tenants
How long will it wait?                                  ``wait.py``         seconds and spread
How honest were earlier estimates?                      ``calibration.py``  p50 and p90
When does work with a deadline move up a tier?          ``promotion.py``    time of the next look
Who holds how much of a queue, and who makes room?      ``backlog.py``      request ids
How fast does the backlog drain?                        ``drain.py``        cost per second
Which tier is owed?                                     ``floors.py``       ranks
Which flow goes next?                                   ``fairness.py``     request id
How much service has each tenant had?                   ``service.py``      tag
Which request of that flow?                             ``ordering.py``     sort key
What waits in one tier, in which order does it leave?   ``lane.py``         `QueuedRequest`
Who waits at the gateway, and until when?               ``waiting.py``      `QueuedRequest`
Which request leaves the queue unserved, and when?      ``expiry.py``       time limits
Does anything leave now, and if not, when?              ``dispatch.py``     `Dispatch`, `WaitUntil`
                                                                            or `Idle`
How much may be in flight at one node?                  ``limits.py``       requests
What did a node do in one window?                       ``window.py``       `WindowSignals`
How is it lately, and does more bring more?             ``trend.py``        mean, gain
Which node gets the request?                            ``routing.py``      node
How many nodes would it take?                           ``replicas.py``     number
Who waits for the engine, and how does the planner see  ``waiting_line.py`` candidates
them?
What was each tier of the engine served?                ``tier_books.py``   ranks that are owed
What does this step compute?                            ``batching.py``     step plan
What can each tier be promised on this machine?         ``promise.py``      targets, limits
How long will this step take?                           ``predictor.py``    seconds
Which coefficients explain the times that were          ``step_fit.py``     coefficients
measured?
How much of its tokens and time may each tier take?     ``budget.py``       tokens, seconds
What is planned so far, and does one more fit in?       ``draft.py``        step plan
Which blocks and slots may a sequence take?             ``room.py``         blocks, slots
When is the next token of a request due?                ``due.py``          time
How much is kept free for the most urgent tier?         ``reserve.py``      slots, blocks
Who gives way?                                          ``preemption.py``   victim
Which item comes first, if items leave from the middle? ``sorted_items.py`` item
Which state may follow which?                           ``request.py``      table
How did a request end?                                  ``outcome.py``      `Outcome`
======================================================  ==================  =======================
"""
