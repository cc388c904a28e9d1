//! The values of policies that are a choice. Where a policy may only become stricter, a later value is stricter.

use lifecycle::named_enum;

named_enum! {
    /// How a machine is cleaned between tenants, and with it what a tenant may be there.
    IsolationModel = "isolation model" {
        /// The account is removed and its traces are scrubbed: its tenant is never root.
        UserRevoke = "user-revoke",
        /// The machine is installed anew: its tenant may become root.
        FullReimage = "full-reimage",
    }
}

named_enum! {
    /// What is recorded of a terminal session.
    TerminalRecording = "terminal recording" {
        Off = "off",
        Output = "output",
        OutputAndInput = "output_and_input",
    }
}

named_enum! {
    /// Whether somebody may use SSH, which nobody can record, where terminals are recorded.
    SshWithoutRecording = "SSH without recording" {
        Allow = "allow",
        Refuse = "refuse",
    }
}

named_enum! {
    /// Whether slices fill nodes up or spread over them.
    Packing = "packing" {
        /// Nodes are filled up, so that big requests stay possible.
        Pack = "pack",
        Spread = "spread",
    }
}
