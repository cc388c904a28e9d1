//! What 1.1 said. Ids are text here: it is not for a contract to look into them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes that travel as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&URL_SAFE_NO_PAD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        URL_SAFE_NO_PAD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

macro_rules! messages {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        $(#[$meta])*
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
    )*};
}

messages! {
    JoinInfo {
        node_id: String,
        hostname: String,
        url: String,
        root_sha256: Vec<String>,
        keyset_key: String,
    }
    EnrollRequest {
        node_id: String,
        token: String,
        csr_pem: String,
        hostname: String,
        agent_version: String,
        #[serde(default)]
        machine_id: String,
    }
    Enrolled {
        node_id: String,
        certificate: IssuedCertificate,
        trust: Trust,
        heartbeat_seconds: u32,
    }
    IssuedCertificate {
        chain_pem: String,
        not_before: DateTime<Utc>,
        not_after: DateTime<Utc>,
    }
    Trust {
        authorities: Vec<TrustedAuthority>,
        keyset: SignedKeyset,
    }
    TrustedAuthority {
        id: String,
        root_pem: String,
    }
    SignedKeyset {
        document: Base64,
        signature: Base64,
    }
    Keyset {
        serial: u64,
        issued_at: DateTime<Utc>,
        signers: Vec<SignerKey>,
    }
    SignerKey {
        signer_version: u32,
        state: SignerState,
        public_key: Base64,
    }
    RenewRequest {
        csr_pem: String,
    }
    Renewed {
        certificate: IssuedCertificate,
        trust: Trust,
    }
    #[derive(Default)]
    WaitQuery {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        room: Option<u32>,
        /// What the node has and has not finished telling of, separated by commas.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holding: Option<String>,
    }
    Waited {
        tasks: Vec<SignedTask>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        renew_now: Option<bool>,
    }
    SignedTask {
        payload: Base64,
        signer_version: u32,
        signature: Base64,
    }
    Task {
        task_id: String,
        node_id: String,
        task_type: String,
        params: Value,
        attempt: u32,
        issued_at: DateTime<Utc>,
        expires_at: DateTime<Utc>,
        correlation_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<String>,
        signer_version: u32,
    }
    Progress {
        phases: Vec<Phase>,
    }
    Phase {
        name: String,
        started_at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
    }
    ProgressAnswer {
        cancelled: bool,
    }
    TaskResult {
        ending: Ending,
        #[serde(default)]
        phases: Vec<Phase>,
    }
    TaskFailure {
        code: FailureCode,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<FailureCause>,
    }
    ResultAnswer {
        counted: bool,
    }
    Heartbeat {
        agent_version: String,
        certificate_expires_at: DateTime<Utc>,
        applied_version: u64,
        boot_id: String,
        #[serde(default)]
        inventory: Inventory,
        #[serde(default)]
        findings: Vec<Finding>,
        #[serde(default)]
        metrics: NodeMetrics,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keyset_serial: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authority_ids: Option<Vec<String>>,
        /// The node's clock minus the control plane's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clock_offset_ms: Option<i64>,
    }
    #[derive(Default)]
    Inventory {
        #[serde(default)]
        users: Vec<String>,
        #[serde(default)]
        machines: Vec<String>,
        #[serde(default)]
        drained: bool,
    }
    Finding {
        code: String,
        subject: String,
        message: String,
        observed_at: DateTime<Utc>,
        #[serde(default)]
        evidence: Value,
    }
    #[derive(Default)]
    NodeMetrics {
        #[serde(default)]
        load_1m: f64,
        #[serde(default)]
        memory_used_mib: u64,
        #[serde(default)]
        state_disk_free_mib: u64,
        #[serde(default)]
        tasks_running: u32,
        #[serde(default)]
        gpus: Vec<GpuMetrics>,
    }
    GpuMetrics {
        pci_address: String,
        utilization_percent: u32,
        memory_used_mib: u64,
        temperature_celsius: i32,
    }
    HeartbeatAnswer {
        heartbeat_seconds: u32,
        desired_version: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keyset_serial: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authority_ids: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        renew_now: Option<bool>,
    }
    LogBatch {
        lines: Vec<LogLine>,
        #[serde(default)]
        dropped: u64,
    }
    LogLine {
        at: DateTime<Utc>,
        level: LogLevel,
        source: String,
        message: String,
    }
    LogsTaken {
        lines: u32,
    }
    ErrorAnswer {
        error: ErrorBody,
    }
    ErrorBody {
        code: String,
        message: String,
    }
    // Inputs of work take no field that they do not know: it would not be done.
    #[serde(deny_unknown_fields)]
    TopologyDiscoverInput {}
    #[serde(deny_unknown_fields)]
    DrainInput {
        reason: String,
    }
    #[serde(deny_unknown_fields)]
    HealthProbeInput {
        profile: ProbeProfile,
        expected_gpus: u32,
    }
    #[serde(deny_unknown_fields)]
    SelfUpdateInput {
        version: String,
        sha256: String,
        size_bytes: u64,
    }
    #[serde(deny_unknown_fields)]
    AccountSpec {
        username: String,
        uid: u32,
        gid: u32,
    }
    #[serde(deny_unknown_fields)]
    #[derive(Default)]
    AccountLimits {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        processes: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open_files: Option<u32>,
    }
    #[serde(deny_unknown_fields)]
    ProvisionUserInput {
        account: AccountSpec,
        owner: String,
        shell: String,
        authorized_keys: Vec<String>,
        #[serde(default)]
        limits: AccountLimits,
        sudo: bool,
        /// With sudo, and then `full-reimage`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation: Option<Isolation>,
    }
}

macro_rules! words {
    ($($name:ident { $($word:ident,)* })*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($word,)* }
    )*};
}

words! {
    SignerState { Staged, Active, Grace, }
    FailureCode { Driver, Timeout, Interrupted, Journal, Unavailable, Invalid, Cancelled, }
    RefusalReason {
        UnknownSigner, BadSignature, Malformed, WrongNode, Expired, NotYetValid, UnknownType, BadParameters,
    }
    ProbeProfile { Onboarding, BetweenTenants, Light, }
    LogLevel { Error, Warn, Info, Debug, }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    Drained,
    /// One that a newer agent knows.
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    UserRevoke,
    FullReimage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Ending {
    Succeeded { output: Value },
    Failed { failure: TaskFailure },
    Refused { reason: RefusalReason },
}
