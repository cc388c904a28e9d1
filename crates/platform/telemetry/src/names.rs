//! Every metric of the product, by name. Code that counts uses these constants; dashboards, alerts and docs
//! are checked against [`ALL`], and `docs/metrics.md` is generated from it.
//!
//! Labels are few and bounded: an endpoint's operation id, a method, a status class, a topic, a lane. Never an
//! id, a path or anything a caller can choose.

use crate::metric::{Metric, counter, gauge, histogram};

pub const BUGS_TOTAL: &str = "bugs_total";
pub const HTTP_REQUESTS_TOTAL: &str = "http_requests_total";
pub const HTTP_REQUEST_DURATION_SECONDS: &str = "http_request_duration_seconds";
pub const HTTP_REQUESTS_IN_FLIGHT: &str = "http_requests_in_flight";
pub const OUTBOX_PENDING: &str = "outbox_pending";
pub const OUTBOX_OLDEST_AGE_SECONDS: &str = "outbox_oldest_age_seconds";
pub const BUS_MESSAGES_TOTAL: &str = "bus_messages_total";
pub const DEAD_LETTERS: &str = "dead_letters";
pub const CONNECTIONS_CUT_TOTAL: &str = "connections_cut_total";
pub const CONNECTIONS_REFUSED_TOTAL: &str = "connections_refused_total";
pub const RATE_LIMITED_TOTAL: &str = "rate_limited_total";
pub const DB_POOL_IN_USE: &str = "db_pool_in_use";
pub const DB_POOL_WAITING: &str = "db_pool_waiting";
pub const IDEMPOTENCY_REPLAYS_TOTAL: &str = "idempotency_replays_total";
pub const AUDIT_ROWS_TOTAL: &str = "audit_rows_total";
pub const TRACE_SPANS_LOST_TOTAL: &str = "trace_spans_lost_total";
pub const NODE_CONNECTIONS: &str = "node_connections";
pub const NODE_ENROLLMENTS_TOTAL: &str = "node_enrollments_total";
pub const NODE_FINDINGS_TOTAL: &str = "node_findings_total";
pub const NODE_WAITING: &str = "node_waiting";
pub const NODE_REFUSALS_TOTAL: &str = "node_refusals_total";
pub const NODE_TUNNELS_TOTAL: &str = "node_tunnels_total";
pub const NODE_LOG_FOLLOWERS: &str = "node_log_followers";
pub const NODE_LOG_FOLLOW_BYTES_TOTAL: &str = "node_log_follow_bytes_total";
pub const NODE_LOG_LINES_DROPPED_TOTAL: &str = "node_log_lines_dropped_total";
pub const SSH_BACKPRESSURE_SECONDS: &str = "ssh_backpressure_seconds";
pub const SSH_BYTES_TOTAL: &str = "ssh_bytes_total";
pub const SSH_CONNECTIONS: &str = "ssh_connections";
pub const SSH_CONNECT_SECONDS: &str = "ssh_connect_seconds";
pub const TERMINAL_ATTACHMENTS: &str = "terminal_attachments";
pub const TERMINAL_ATTACHMENTS_REFUSED_TOTAL: &str = "terminal_attachments_refused_total";
pub const TERMINAL_BACKPRESSURE_SECONDS: &str = "terminal_backpressure_seconds";
pub const TERMINAL_BYTES_TOTAL: &str = "terminal_bytes_total";
pub const TERMINAL_CONNECTIONS_PAUSED_TOTAL: &str = "terminal_connections_paused_total";
pub const TERMINAL_CONNECTIONS_REFUSED_TOTAL: &str = "terminal_connections_refused_total";
pub const TERMINAL_CONNECT_SECONDS: &str = "terminal_connect_seconds";
pub const TERMINAL_ECHO_SECONDS: &str = "terminal_echo_seconds";
pub const TERMINAL_RECORDING_FAILURES_TOTAL: &str = "terminal_recording_failures_total";
pub const TERMINAL_RECORDING_STORED_BYTES_TOTAL: &str = "terminal_recording_stored_bytes_total";
pub const TERMINAL_RECORDING_TAMPERING_TOTAL: &str = "terminal_recording_tampering_total";
pub const TERMINAL_SESSIONS_ACTIVE: &str = "terminal_sessions_active";
pub const TERMINAL_TOKENS_REFUSED_TOTAL: &str = "terminal_tokens_refused_total";
pub const TERMINAL_TOKEN_TO_READY_SECONDS: &str = "terminal_token_to_ready_seconds";
pub const NODE_REPORTS_TOTAL: &str = "node_reports_total";
pub const NODE_REPORTS_LIMITED_TOTAL: &str = "node_reports_limited_total";
pub const NODE_IDENTITIES_COPIED_TOTAL: &str = "node_identities_copied_total";
pub const NODE_TASKS_TOTAL: &str = "node_tasks_total";
pub const NODE_TASK_DISPATCH_SECONDS: &str = "node_task_dispatch_seconds";
pub const NODES: &str = "nodes";
pub const NODE_CERTIFICATES_ENDING: &str = "node_certificates_ending";
pub const SAGA_RUNS_TOTAL: &str = "saga_runs_total";
pub const SAGA_END_FAILURES_TOTAL: &str = "saga_end_failures_total";
pub const SAGA_ENDS_RETRIED: &str = "saga_ends_retried";
pub const SAGA_RUNS_OVERDUE: &str = "saga_runs_overdue";
pub const SAGA_RUNS_STUCK: &str = "saga_runs_stuck";
pub const SAGA_STEP_SECONDS: &str = "saga_step_seconds";
pub const ALLOCATIONS_REQUESTED_TOTAL: &str = "allocations_requested_total";
pub const ALLOCATION_TRANSITIONS_TOTAL: &str = "allocation_transitions_total";
pub const WORK_ORDERS_REFUSED_TOTAL: &str = "work_orders_refused_total";
pub const CAPACITY_DISCREPANCIES_OPEN: &str = "capacity_discrepancies_open";
pub const BILLING_WINDOWS_TOTAL: &str = "billing_windows_total";
pub const BILLING_ACCRUAL_REFUSED_TOTAL: &str = "billing_accrual_refused_total";
pub const BILLING_ACCRUAL_LAG_SECONDS: &str = "billing_accrual_lag_seconds";
pub const BILLING_CLOCK_SKEW_SECONDS: &str = "billing_clock_skew_seconds";
pub const BILLING_ACCRUAL_STOPPED_TOTAL: &str = "billing_accrual_stopped_total";
pub const BILLING_TICK_SECONDS: &str = "billing_tick_seconds";
pub const ALLOCATIONS_FORCED_TOTAL: &str = "allocations_forced_total";
pub const BILLING_FINDINGS_OPEN: &str = "billing_findings_open";
pub const BILLING_ADJUSTMENTS_WAITING: &str = "billing_adjustments_waiting";
pub const BILLING_ADJUSTMENTS_OLDEST_SECONDS: &str = "billing_adjustments_oldest_seconds";
pub const PAYMENTS_CREDITED_TOTAL: &str = "payments_credited_total";
pub const PAYMENT_MESSAGES_RECEIVED_TOTAL: &str = "payment_messages_received_total";
pub const PAYMENT_MESSAGES_REFUSED_TOTAL: &str = "payment_messages_refused_total";
pub const PAYMENT_MESSAGES_PROCESSED_TOTAL: &str = "payment_messages_processed_total";
pub const PAYMENT_MESSAGES_WAITING: &str = "payment_messages_waiting";
pub const PAYMENT_MESSAGES_FAILED: &str = "payment_messages_failed";
pub const PAYMENT_MESSAGES_OLDEST_SECONDS: &str = "payment_messages_oldest_seconds";
pub const PAYMENT_REFUNDS_UNKNOWN_TOTAL: &str = "payment_refunds_unknown_total";
pub const PAYMENT_DAY_DIFFERENCES: &str = "payment_day_differences";
pub const NOTIFY_ATTEMPTS_TOTAL: &str = "notify_attempts_total";
pub const NOTIFY_GIVEN_UP_TOTAL: &str = "notify_given_up_total";
pub const NOTIFY_DROPPED_TOTAL: &str = "notify_dropped_total";
pub const NOTIFY_DELIVERIES: &str = "notify_deliveries";
pub const NOTIFY_OLDEST_QUEUED_SECONDS: &str = "notify_oldest_queued_seconds";
pub const INSTALLATION_RESTORE_MODE: &str = "installation_restore_mode";
pub const PROCESS_RESIDENT_MEMORY_BYTES: &str = "process_resident_memory_bytes";
pub const PROCESS_CPU_SECONDS_TOTAL: &str = "process_cpu_seconds_total";
pub const PROCESS_OPEN_FDS: &str = "process_open_fds";

pub const ALL: &[Metric] = &[
    counter(BUGS_TOTAL, &[], "Broken invariants (bugs)."),
    counter(
        HTTP_REQUESTS_TOTAL,
        &[("endpoint", &[]), ("method", &[]), ("status", &[])],
        "Completed requests, by endpoint, method and status.",
    ),
    histogram(HTTP_REQUEST_DURATION_SECONDS, &[("endpoint", &[])], "Duration of requests, by endpoint."),
    gauge(HTTP_REQUESTS_IN_FLIGHT, &[], "Requests in progress."),
    gauge(OUTBOX_PENDING, &[], "Outbox rows that are not published yet."),
    gauge(OUTBOX_OLDEST_AGE_SECONDS, &[], "Age of the oldest unpublished outbox row."),
    counter(
        BUS_MESSAGES_TOTAL,
        &[("topic", &[]), ("consumer", &[]), ("outcome", &["handled", "duplicate", "retried", "dead"])],
        "Bus messages by topic, consumer and outcome.",
    ),
    gauge(DEAD_LETTERS, &[("consumer", &[])], "Open dead letters, by consumer."),
    counter(
        CONNECTIONS_CUT_TOTAL,
        &[("listener", &[]), ("reason", &["not_reading", "did_not_leave", "shutdown"])],
        "Connections closed by the server, by listener and reason.",
    ),
    counter(
        CONNECTIONS_REFUSED_TOTAL,
        &[("listener", &[])],
        "Connections refused by the limit per address, by listener.",
    ),
    counter(RATE_LIMITED_TOTAL, &[("lane", &[])], "Requests refused by a rate limit, by lane."),
    gauge(DB_POOL_IN_USE, &[("pool", &[])], "Database connections in use, by pool."),
    gauge(DB_POOL_WAITING, &[("pool", &[])], "Tasks waiting for a database connection, by pool."),
    counter(
        IDEMPOTENCY_REPLAYS_TOTAL,
        &[],
        "Requests answered with the stored response of their idempotency key.",
    ),
    counter(AUDIT_ROWS_TOTAL, &[], "Audit rows written."),
    counter(TRACE_SPANS_LOST_TOTAL, &[], "Spans that the trace collector did not accept."),
    gauge(NODE_CONNECTIONS, &[], "Connections of nodes to this process."),
    counter(NODE_ENROLLMENTS_TOTAL, &[("outcome", &[])], "Enrolments of nodes, by outcome."),
    counter(NODE_FINDINGS_TOTAL, &[("action", &[])], "Health findings that nodes reported, by action."),
    gauge(NODE_WAITING, &[], "Long polls of nodes at this process."),
    counter(
        NODE_REFUSALS_TOTAL,
        &[("reason", &[])],
        "Connections and requests of nodes that were refused, by reason.",
    ),
    counter(NODE_REPORTS_TOTAL, &[], "Written reports of nodes."),
    counter(NODE_REPORTS_LIMITED_TOTAL, &[], "Reports and log batches of nodes refused by a rate limit."),
    counter(NODE_IDENTITIES_COPIED_TOTAL, &[], "Uses of superseded certificates of nodes."),
    counter(
        NODE_TASKS_TOTAL,
        &[("event", &[])],
        "Tasks of nodes, by event: `dispatched`, `rejected`, `late`, or the state in which a task ended.",
    ),
    histogram(NODE_TASK_DISPATCH_SECONDS, &[], "Time from queueing a task to leasing it to its node."),
    gauge(NODES, &[("state", &[])], "Nodes of the fleet, by state."),
    gauge(
        NODE_CERTIFICATES_ENDING,
        &[],
        "Nodes in service whose certificate expires soon and was not renewed.",
    ),
    counter(
        SAGA_RUNS_TOTAL,
        &[("name", &[]), ("end", &[])],
        "Ended workflow runs, by workflow and end state.",
    ),
    counter(
        SAGA_END_FAILURES_TOTAL,
        &[("name", &[])],
        "Failed attempts to record the end of a workflow in its domain; alert when it grows.",
    ),
    gauge(SAGA_ENDS_RETRIED, &[], "Ended workflow runs whose end is not recorded in their domain yet."),
    gauge(SAGA_RUNS_OVERDUE, &[], "Workflow runs that are due and were not leased for a minute."),
    gauge(SAGA_RUNS_STUCK, &[], "Stuck workflow runs without a later run for the same subject."),
    histogram(
        SAGA_STEP_SECONDS,
        &[("saga", &[]), ("step", &[])],
        "Duration of one call of a workflow step with its transaction.",
    ),
    counter(
        ALLOCATIONS_REQUESTED_TOTAL,
        &[("shape", &[])],
        "Allocations whose capacity was reserved, by shape.",
    ),
    counter(ALLOCATION_TRANSITIONS_TOTAL, &[("to", &[])], "State changes of allocations, by new state."),
    counter(
        WORK_ORDERS_REFUSED_TOTAL,
        &[("reason", &[])],
        "Work orders that were refused, because they expired or differ from what was sealed.",
    ),
    gauge(CAPACITY_DISCREPANCIES_OPEN, &[("kind", &[])], "Open capacity discrepancies, by kind."),
    counter(BILLING_WINDOWS_TOTAL, &[], "Accrued windows of meters."),
    counter(BILLING_ACCRUAL_REFUSED_TOTAL, &[], "Failed attempts to accrue the meters of an organization."),
    gauge(BILLING_ACCRUAL_LAG_SECONDS, &[], "Lag of the oldest meter at the start of the last tick."),
    gauge(BILLING_CLOCK_SKEW_SECONDS, &[], "Clock skew of the process; positive when ahead of the database."),
    counter(BILLING_ACCRUAL_STOPPED_TOTAL, &[], "Ticks of accrual skipped because of clock skew."),
    histogram(BILLING_TICK_SECONDS, &[], "Duration of one tick of accrual."),
    counter(
        ALLOCATIONS_FORCED_TOTAL,
        &[("cause", &[])],
        "Allocations released because of depletion or a budget.",
    ),
    gauge(BILLING_FINDINGS_OPEN, &[("kind", &[])], "Open billing findings, by kind."),
    gauge(BILLING_ADJUSTMENTS_WAITING, &[], "Credits and corrections that wait for approval."),
    gauge(BILLING_ADJUSTMENTS_OLDEST_SECONDS, &[], "Age of the oldest adjustment that waits for approval."),
    counter(NODE_TUNNELS_TOTAL, &[], "Tunnels that nodes dialled because a gateway needed them."),
    gauge(NODE_LOG_FOLLOWERS, &[], "Clients that follow a log of a node here."),
    counter(NODE_LOG_FOLLOW_BYTES_TOTAL, &[], "Bytes of logs that clients follow, as nodes sent them."),
    counter(
        NODE_LOG_LINES_DROPPED_TOTAL,
        &[],
        "Lines that nodes dropped because a client that follows their log was too slow.",
    ),
    histogram(
        SSH_BACKPRESSURE_SECONDS,
        &[],
        "Waits of 10 ms and more of this gateway for a client of SSH to take its output, as each ended.",
    ),
    counter(
        SSH_BYTES_TOTAL,
        &[("direction", &["in", "out"])],
        "Bytes of SSH connections through this gateway, as seen from the node.",
    ),
    gauge(SSH_CONNECTIONS, &[], "SSH connections that are open through this gateway."),
    histogram(
        SSH_CONNECT_SECONDS,
        &[],
        "Time from a client with a good token to the SSH server of its machine, the tunnel included.",
    ),
    counter(
        TERMINAL_RECORDING_FAILURES_TOTAL,
        &[("reason", &["start", "store", "conflict", "seal", "delete", "retention"])],
        "Recordings of terminal sessions that could not be started, stored, sealed or deleted in time, or that the database \
         would have deleted too early.",
    ),
    counter(
        TERMINAL_RECORDING_STORED_BYTES_TOTAL,
        &[],
        "Bytes of chunks of recordings that this gateway has put into the object storage.",
    ),
    counter(
        TERMINAL_RECORDING_TAMPERING_TOTAL,
        &[],
        "Times that the stored objects of a recording were found changed by somebody else.",
    ),
    gauge(
        TERMINAL_ATTACHMENTS,
        &[],
        "Clients that are attached to a terminal session here, those that only watch included.",
    ),
    counter(
        TERMINAL_ATTACHMENTS_REFUSED_TOTAL,
        &[("code", &[])],
        "Clients with a good token that got no terminal, by the code that they were told.",
    ),
    histogram(
        TERMINAL_BACKPRESSURE_SECONDS,
        &[("waits_for", &["client", "recording"])],
        "Waits of 10 ms and more of this gateway for a client of a terminal to take its output, or for a recording to be \
         stored, as each ended. The program waits meanwhile as soon as its window is full.",
    ),
    counter(
        TERMINAL_BYTES_TOTAL,
        &[("direction", &["in", "out"])],
        "Bytes of terminals, as seen from the node.",
    ),
    histogram(
        TERMINAL_CONNECT_SECONDS,
        &[],
        "Time from a client with a good token to its session, the tunnel included.",
    ),
    counter(
        TERMINAL_CONNECTIONS_REFUSED_TOTAL,
        &[("reason", &["full", "origin", "token_in_url"])],
        "WebSockets of terminals, SSH and logs that were refused before their token was looked at: the gateway has as many \
         open as it may have, the page is of somebody else, or there is something in the URL. `rate_limited_total` has \
         those of addresses that ask too often.",
    ),
    histogram(
        TERMINAL_ECHO_SECONDS,
        &[],
        "Time from handing typed bytes to the tunnel of their node until the next output of the session was written to the \
         socket of the client. One at a time is measured for each client, so it is a sample; a program that prints by itself \
         makes it shorter. What is not answered within 30 s is not counted.",
    ),
    counter(
        TERMINAL_CONNECTIONS_PAUSED_TOTAL,
        &[],
        "Terminals, SSH connections and logs in which nothing passed for a while, because the database did not say whether they may go on.",
    ),
    gauge(
        TERMINAL_SESSIONS_ACTIVE,
        &[],
        "Terminal sessions that somebody types into through this gateway. While one is taken over, it may count twice.",
    ),
    counter(
        TERMINAL_TOKENS_REFUSED_TOTAL,
        &[(
            "reason",
            &[
                "missing",
                "malformed",
                "used",
                "unknown",
                "expired",
                "other_kind",
                "other_allocation",
                "other_node",
            ],
        )],
        "Tokens of terminals, SSH and logs that were not accepted. `used`: this gateway has used the token up within five minutes, \
         so it was shown twice. `unknown`: it was never given, or was used elsewhere or earlier, because the database forgets \
         a token when it is used.",
    ),
    histogram(
        TERMINAL_TOKEN_TO_READY_SECONDS,
        &[],
        "Time from minting a token to `session_ready` at its client, which has to come here with it first. Exact as far as the \
         clocks of `api` and gateway agree.",
    ),
    counter(PAYMENTS_CREDITED_TOTAL, &[], "Payments credited to a balance."),
    counter(
        PAYMENT_MESSAGES_RECEIVED_TOTAL,
        &[("how", &["new", "again"])],
        "Received messages of the payment provider.",
    ),
    counter(
        PAYMENT_MESSAGES_REFUSED_TOTAL,
        &[("why", &[])],
        "Messages of the payment provider that were refused, by reason.",
    ),
    counter(
        PAYMENT_MESSAGES_PROCESSED_TOTAL,
        &[("state", &[])],
        "Processed messages of the payment provider, by outcome.",
    ),
    gauge(PAYMENT_MESSAGES_WAITING, &[], "Messages of the payment provider that wait for processing."),
    gauge(
        PAYMENT_MESSAGES_FAILED,
        &[],
        "Messages of the payment provider whose processing failed; they wait for a person.",
    ),
    gauge(
        PAYMENT_MESSAGES_OLDEST_SECONDS,
        &[],
        "Age of the oldest message of the payment provider that waits for processing.",
    ),
    counter(PAYMENT_REFUNDS_UNKNOWN_TOTAL, &[], "Refunds with an unknown result."),
    gauge(
        PAYMENT_DAY_DIFFERENCES,
        &[("kind", &["missing", "extra", "different"])],
        "Differences between our payments and the provider's on the last reconciled day.",
    ),
    counter(
        NOTIFY_ATTEMPTS_TOTAL,
        &[("channel", &[]), ("outcome", &["sent", "not_now", "refused"])],
        "Attempts to send a message, by channel and outcome.",
    ),
    counter(NOTIFY_GIVEN_UP_TOTAL, &[("channel", &[])], "Abandoned messages, by channel."),
    counter(
        NOTIFY_DROPPED_TOTAL,
        &[],
        "Events not sent to webhooks because the queue of the organization was full.",
    ),
    gauge(
        NOTIFY_DELIVERIES,
        &[("channel", &[]), ("state", &[])],
        "Pending or abandoned messages, by channel and state.",
    ),
    gauge(
        NOTIFY_OLDEST_QUEUED_SECONDS,
        &[("channel", &[])],
        "Age of the oldest pending message, by channel.",
    ),
    gauge(INSTALLATION_RESTORE_MODE, &[], "1 while the installation is in restore mode."),
    gauge(PROCESS_RESIDENT_MEMORY_BYTES, &[], "Resident memory of this process."),
    counter(PROCESS_CPU_SECONDS_TOTAL, &[], "Processor time used by this process."),
    gauge(PROCESS_OPEN_FDS, &[], "File descriptors open in this process."),
];

/// Counters whose first increment an alert must see. Prometheus sees no increase in a series that begins with one, so these begin
/// with zero when the process does.
pub const FROM_ZERO: &[(&str, &[(&str, &str)])] = &[
    (NODE_IDENTITIES_COPIED_TOTAL, &[]),
    (TERMINAL_CONNECTIONS_REFUSED_TOTAL, &[("reason", "full")]),
    (TERMINAL_RECORDING_FAILURES_TOTAL, &[("reason", "start")]),
    (TERMINAL_RECORDING_FAILURES_TOTAL, &[("reason", "store")]),
    (TERMINAL_RECORDING_FAILURES_TOTAL, &[("reason", "conflict")]),
    (TERMINAL_RECORDING_FAILURES_TOTAL, &[("reason", "seal")]),
    (TERMINAL_RECORDING_FAILURES_TOTAL, &[("reason", "delete")]),
    (TERMINAL_RECORDING_FAILURES_TOTAL, &[("reason", "retention")]),
    (TERMINAL_RECORDING_TAMPERING_TOTAL, &[]),
    (TERMINAL_TOKENS_REFUSED_TOTAL, &[("reason", "used")]),
    (NODE_TASKS_TOTAL, &[("event", "rejected")]),
    (BILLING_ACCRUAL_STOPPED_TOTAL, &[]),
    (BILLING_ACCRUAL_REFUSED_TOTAL, &[]),
    (NOTIFY_GIVEN_UP_TOTAL, &[("channel", "mail")]),
];
