package cli

const pathClock = "/api/v1/clock/"

var clockNoun = noun{
	name: "clock", short: "The server's clock, and whether it is trusted",
	alone: &action{
		use: "clock", short: "Show the server's clock, and whether it is trusted",
		long:    "A clock that jumps by more than an hour is not trusted, also after a stop. Then nothing is deleted by age.",
		example: "clock", method: "GET", path: pathClock, id: "trusted",
	},
	actions: []action{{
		use: "accept", short: "Confirm that the server's clock is right, so that old rows are deleted again",
		example: "accept", method: "POST", path: pathClock + "accept/", id: "trusted",
	}},
}
